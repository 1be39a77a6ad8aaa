"""Values and pure functions that know no task, no file and no plot."""

from mnemoscope.core.renamed import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
