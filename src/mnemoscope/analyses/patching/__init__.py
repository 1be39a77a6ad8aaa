"""Patching: which activations and which connections carry the difference between two prompts.

- `activations`: one activation after the other from the other run, exactly; and the effects of that.
- `edges`: one connection between two parts after the other, exactly; and the same along a chain of edges.
- `attribution`: activations to first order. `edge_attribution`: edges to first order (EAP, EAP-IG).
- `approximation`: how far an estimate is from the exact effects.
- `edge_roles`: results over edges with heads called by their roles, for one seed and for several.
"""
