"""Claims B1 to B13, M1 to M3, N1 and N2."""
