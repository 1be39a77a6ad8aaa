from .known import KNOWN_CIRCUITS as KNOWN_CIRCUITS
from .known import KnownCircuit as KnownCircuit
