"""The k-fold composition task (S7): functions in the context and functions in the weights, applied in turn.

- `tasks`: the data, their latents, minimal pairs and exact references.
- `presets`: configurations: all numbers of hops at once, the longest alone, curricula.
- `constructed`: a model with weights set by hand that composes by doubling.
- `analyses`: which layer holds which intermediate result.
- `claims`: K1 to K4; `claim_parts`, what several of them share.
- `report`: the page on runs.
"""
