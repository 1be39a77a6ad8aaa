"""Published sentences on trial over many runs, and as unit tests: claims, evidence, controls, verdicts."""

from mnemoscope.core.renamed import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
