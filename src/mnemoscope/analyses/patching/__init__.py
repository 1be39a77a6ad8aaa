"""Patching: the activations and connections that carry the difference between two prompts.

- `activations`: activations patched one at a time, exactly; and their necessity and sufficiency.
- `edges`: connections between two parts patched one at a time, exactly; and paths, which are chains of edges.
- `attribution`: first-order estimates for activations. `edge_attribution`: the same for edges (EAP, EAP-IG).
- `approximation`: the error of an estimate against the exact effects.
- `edge_roles`: results over edges with heads called by their roles, for one seed and for several.
"""
