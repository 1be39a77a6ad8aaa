"""Associative-memory theory (S4): the number of associations that a matrix or an MLP can store, claim M4.

`associations` has random problems and the search for the largest number that is stored, `training` trains many as one
batch, and `capacity` measures growth; `report` shows it beside the published line. M1 to M3, on single gradient steps,
belong to `in_context_bigrams`.
"""
