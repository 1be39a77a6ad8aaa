"""Claims F-K1, D2, D4 and D5."""
