"""Activation patching: the cells of a grid, from one run into another.

- `grid`: the cells. `sweep`: every cell measured. `through_stream`: the fast way. `by_hooks`: the way for every model.
- `measuring`: questions about prompt pairs, metrics of logits, and plans within a number of bytes (`engine.budget`).
- `tracing`: forward passes that can be differentiated, for estimates to first order.
"""
