"""Claim M4: of a trained matrix, of an MLP (M4-mlp), and of the sum of outer products without training (M4-outer)."""
