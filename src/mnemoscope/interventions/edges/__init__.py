"""What the edges between the parts of a model carry: many choices in one batch.

- `graph`: the parts and edges of a model, and what each edge carries in each of many cells.
- `hooks`: what parts read, changed; interventions on edges. `run`: any states, through these hooks.
- `through_stream`: one edge at a time, the fast way. `circuits`: many circuits, likewise.
- `attributed`: gradients at every reader's input, and what follows to first order.
"""
