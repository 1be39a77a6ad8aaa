"""Claims L1 and L2."""
