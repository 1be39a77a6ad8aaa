"""In-context bigrams, the birth of an induction head, and noisy recall: claims B1 to B13, M1 to M3, N1, N2."""
