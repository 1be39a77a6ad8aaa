"""The retrieval problem (S8): vectors in, vectors out, chains that several layers follow.

- `tasks`: the data, their latents, minimal pairs and exact references.
- `presets`: configurations and what `reproduce` trains.
"""
