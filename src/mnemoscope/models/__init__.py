"""Configurations, checkpoints and runs; the only room that builds TransformerLens models."""

from mnemoscope.core.renamed import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
