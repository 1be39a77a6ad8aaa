"""Claims B1 to B14, M1 to M3, N1 and N2."""
