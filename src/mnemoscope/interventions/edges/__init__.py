"""What the edges between the parts of a model carry: many choices in one batch.

- `graph`: the edges of a model. `states`: what each carries in each of many cells. `written`: a run as edges see it.
- `run`, `sweep`: any states, through hooks. `hooks`: interventions on edges within one forward pass.
- `plan`, `through_stream`, `readers`: one edge at a time, the fast way. `circuits`, `shared`: many circuits, likewise.
- `gradients`, `attributed`: gradients at every reader's input, and what follows to first order.
"""
