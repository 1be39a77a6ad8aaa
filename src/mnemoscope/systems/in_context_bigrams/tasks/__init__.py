"""In-context bigrams and noisy recall."""
