"""The k-fold composition task (S7): functions in the context and functions in the weights, applied in turn.

- `tasks`: the data, their latents, minimal pairs and exact references.
- `presets`: configurations: k hops alone, mixtures and curricula.
"""
