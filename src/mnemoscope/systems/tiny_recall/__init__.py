"""Elimination and recall in permutation lookup: claims T1 to T25."""
