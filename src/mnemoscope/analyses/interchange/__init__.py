"""Tests whether a network computes as a causal model says: interchange interventions, and subspaces learned for them.

- `counterfactuals`: what does a causal model say about pairs of sequences, and about which that something changes?
- `exchange`: does the network say so when an activation, or a subspace of it, comes from the other sequence?
- `search`: in which subspace does a variable lie (distributed alignment search), beside all controls?
- `alignment`: which head carries which variable, chosen on some pairs and tested on others?
"""
