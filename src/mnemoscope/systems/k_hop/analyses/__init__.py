"""Measurements on models that compose functions: which layer holds which intermediate result.

`halves`: interchange of second halves. `readable`: linear probes.
"""

from mnemoscope.systems.k_hop.analyses.halves import exchanged_halves as exchanged_halves
from mnemoscope.systems.k_hop.analyses.halves import held_in_order as held_in_order
from mnemoscope.systems.k_hop.analyses.readable import readable as readable
