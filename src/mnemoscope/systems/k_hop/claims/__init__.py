"""Claims K1 to K4."""
