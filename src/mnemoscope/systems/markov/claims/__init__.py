"""Claims E1 to E7."""
