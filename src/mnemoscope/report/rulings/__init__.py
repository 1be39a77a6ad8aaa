"""Rulings on claims: a self-contained page, and rows for the terminal and for CSV files.

*Shows* every verdict with all that decides it: what was asked, each replicate, controls, rivals, other choices.

*Does not show* that a margin is sensible, or that a measure measures what the sentence claims.
"""

from mnemoscope.core.renamed import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
