"""The version of the package, and of the numbers that it computes.

The version is the tag that the package was built from, and after it how many commits later and which one.
"""

from importlib.metadata import version

__version__ = version("mnemoscope")

NUMBERS = 2
"""Raised by hand when the same call on the same weights may give other numbers than before: of core, engine, models,
interventions and analyses. What was measured under another value is measured anew. 2: one engine, within 1e-5 of 1."""
# Golden outputs (tests/golden) guard it: if they change, so does this number.
