"""Laws that a hooked model must keep, and their check; claims as unit tests are in `ms.claims.testing`."""

from mnemoscope.core.renamed import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
