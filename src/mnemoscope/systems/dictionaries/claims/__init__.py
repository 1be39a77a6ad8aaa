"""Claims F-K1, D2 and D5."""
