"""Results to tables, plotly figures, CircuitsVis views and self-contained pages."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
