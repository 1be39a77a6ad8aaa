"""Claims R1 to R10."""
