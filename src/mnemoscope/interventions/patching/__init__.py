"""Activation patching: the cells of a grid, from one run into another.

- `grid`: the cells, and patching through hooks, for every model. `sweep`: every cell measured, the fast way where open.
- `measuring`: questions about prompt pairs, metrics of logits, and plans within a number of bytes (`engine.budget`).
- `tracing`: forward passes that can be differentiated, for first-order estimates.
"""
