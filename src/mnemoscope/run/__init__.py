"""Many runs, on one machine or a Dask cluster: over seeds, and over configurations."""

from mnemoscope.core.renamed import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
