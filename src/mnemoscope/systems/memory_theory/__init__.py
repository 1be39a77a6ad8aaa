"""Associative-memory theory (S4): the number of associations that a matrix or an MLP can store, claim M4.

`analyses` has random associations, their training as one batch, the search for the largest number that is stored, and
its growth; `report` shows capacity beside the published line. M1 to M3, on single gradient steps, belong to
`in_context_bigrams`.
"""
