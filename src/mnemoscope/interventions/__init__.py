"""Interventions on activations, edges and weights: replacing, patching and steering."""

from mnemoscope.core.renamed import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
