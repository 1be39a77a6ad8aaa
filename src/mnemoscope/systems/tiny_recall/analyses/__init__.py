"""Analyses of permutation lookup."""
