"""Claims G1 to G5."""
