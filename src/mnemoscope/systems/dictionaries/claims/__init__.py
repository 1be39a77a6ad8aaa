"""Claims F-K1, D2 to D4 and D5."""
