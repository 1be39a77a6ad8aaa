"""Claims P1 to P16, one module per puzzle."""
