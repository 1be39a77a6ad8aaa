"""Many runs, on one machine or a Dask cluster: over seeds, and over configurations; the verdicts on record of
claims over such runs.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
