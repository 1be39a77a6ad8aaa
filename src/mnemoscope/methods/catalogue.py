"""The registries with everything of the package in them; importing a module registers what it holds."""

from mnemoscope.methods import constructed as constructed
from mnemoscope.methods import learned as learned
from mnemoscope.methods import patching as patching
from mnemoscope.methods import searches as searches
from mnemoscope.methods.known import KNOWN_CIRCUITS as KNOWN_CIRCUITS
from mnemoscope.methods.method import METHODS as METHODS
from mnemoscope.methods.method import describe as describe
from mnemoscope.methods.method import score_edges as score_edges
