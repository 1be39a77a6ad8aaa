"""What one part of a model does through another: edges between heads, MLPs, embeddings and logits.

- `patching`: what is lost when one edge carries another prompt's output. Exact. `paths`: the same along a chain of
  edges. `cells`: what all other edges carry meanwhile.
- `attribution`: the same to first order (EAP), for all edges from a few forward and backward passes.
- `integrated`: the same with gradients integrated between the two prompts (EAP-IG).
- `approximation`: how far an estimate is from the exact effects.
- `roles`: results with heads called by their roles.
"""
