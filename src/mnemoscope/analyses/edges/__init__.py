"""What one part of a model does through another: edges between heads, MLPs, embeddings and logits.

- `patching`: what is lost when one edge, or one path of edges, carries another prompt's output. Exact.
- `attribution`: the same to first order, for all edges from a few forward and backward passes.
- `approximation`: how far the second is from the first.
"""
