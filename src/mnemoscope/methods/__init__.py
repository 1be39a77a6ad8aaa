"""Methods of circuit discovery on trial: models whose circuit is known, and how well each method finds it."""

from mnemoscope.core.renamed import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
