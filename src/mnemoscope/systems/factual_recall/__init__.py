"""Factual recall (S5): a subject and a relation among noise tokens, and the fact that belongs to both.

`tasks` has the table of facts, the data, their minimal pairs and exact references; `presets` the one-layer models of
the grid, and linear attention on one-hot embeddings; `analyses` what is known of a fact along training (`stages`).
"""
