"""Interventions on the edges between a model's parts: many choices in one batch.

- `graph`: the parts and edges of a model, and what each edge carries in each of many cells.
- `hooks`: hooks that change what parts read, for interventions on edges. `run`: any states, through these hooks.
- `through_stream`: one edge at a time, the fast way. `circuits`: many circuits, likewise.
- `attributed`: gradients at every reader's input, and first-order estimates from them.
"""
