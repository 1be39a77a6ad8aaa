"""Results to tables, plotly figures, CircuitsVis views and self-contained pages."""

from mnemoscope.core.renamed import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
