"""Circuits on the graph of a model's edges: what they are measured on, searches for them, and their quality."""
