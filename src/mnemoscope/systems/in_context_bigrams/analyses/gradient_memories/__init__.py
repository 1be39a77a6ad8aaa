"""Gradients as associative memories: what a few gradient steps from zero store.

`one_step`: the simplified transformer in the basis of its embeddings, the gradient of a memory in closed form, and what
one step stores. `three_steps`: an induction head from one step per matrix.
"""
