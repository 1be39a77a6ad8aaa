"""Claims G1 to G6."""
