"""Claims I1 to I6."""
