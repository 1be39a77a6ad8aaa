"""Architectures, checkpoints and runs; the only folder that imports TransformerLens."""
