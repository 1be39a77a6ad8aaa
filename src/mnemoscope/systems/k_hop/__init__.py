"""The k-fold composition task (S7): functions in the context and functions in the weights, applied in turn.

`tasks` has the data, their latents, minimal pairs and exact references; `presets` all numbers of hops at once, the
longest alone, and curricula; `constructed` a model that composes by doubling; `analyses` which layer holds which
intermediate result; `claims` K1 to K5.
"""
