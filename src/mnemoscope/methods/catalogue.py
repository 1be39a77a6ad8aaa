"""The registries with everything of the package in them; importing a module registers what it holds."""

from mnemoscope.methods import constructed, learned, patching, searches  # noqa: F401
from mnemoscope.methods.known import KNOWN_CIRCUITS as KNOWN_CIRCUITS
from mnemoscope.methods.method import METHODS as METHODS
from mnemoscope.methods.method import describe as describe
from mnemoscope.methods.method import score_edges as score_edges
