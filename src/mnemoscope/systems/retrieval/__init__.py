"""The retrieval problem (S8): vectors in, vectors out, chains that several layers follow.

- `tasks`: the data, their latents, minimal pairs and exact references.
- `presets`: configurations.
- `constructed`: models with weights set by hand that follow the chains.
- `analyses`: how many layers it takes (`reach`), attention between the places of a chain, and the circuit of a model.
- `report`: the page on runs; `figures`: who knows what, and who fetches what from where.
"""
