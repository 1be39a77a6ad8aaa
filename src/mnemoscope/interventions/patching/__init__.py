"""Activation patching: the cells of a grid, from one run into another.

- `grid`: which cells. `sweep`: every cell measured, and how it is run: along the stream, or through hooks.
- `through_stream`: what a patch adds to the residual stream. `packed`: the forward pass from there on.
- `measuring`: what is asked, and metrics of logits. `memory`: how many prompts and cells fit into a number of bytes.
- `tracing`: forward passes that can be differentiated, for estimates to first order.
"""
