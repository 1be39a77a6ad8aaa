"""Activation patching: the cells of a grid, from one run into another.

- `grid`: which cells. `sweep`: every cell measured, and how it is run: along the stream, or through hooks.
- `through_stream`: what a patch adds to the residual stream. `packed`: the forward pass from there on.
- `reading`: recorded runs, and metrics of logits. `memory`: how many prompts and cells fit into a number of bytes.
"""
