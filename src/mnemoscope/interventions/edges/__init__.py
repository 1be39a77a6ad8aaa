"""What the edges between the parts of a model carry: many choices in one batch.

- `graph`: the edges of a model, and what each carries in each of many cells.
- `run`, `sweep`: any states, through hooks. `hooks`: interventions on edges within one forward pass.
- `through_stream`: one edge at a time, the fast way. `circuits`: many circuits, likewise.
- `gradients`, `attributed`: gradients at every reader's input, and what follows to first order.
"""
