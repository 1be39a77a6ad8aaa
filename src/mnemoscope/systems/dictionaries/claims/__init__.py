"""Claims F-K1 and D5."""
