"""Rulings on claims: a self-contained page, and rows for the terminal and for CSV files.

*Shows* every verdict with all that decides it: what was asked, each replicate, controls, rivals, other choices.

*Does not show* that a margin is sensible, or that a measure measures what the sentence claims.
"""

from mnemoscope.viz.rulings.page import Example, rulings_page
from mnemoscope.viz.rulings.words import DIFF_HEADER, VERDICT_HEADER, diff_rows, verdict_rows

__all__ = ["DIFF_HEADER", "VERDICT_HEADER", "Example", "diff_rows", "rulings_page", "verdict_rows"]
