"""Claims K1 to K5."""
