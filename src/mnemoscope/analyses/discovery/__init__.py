"""Circuits on the graph of a model's edges: finding them, and judging those that were found.

`circuit`: which edges belong to a circuit, and which of them can matter? `setting`: what is a circuit measured on?
`faithful`: how much of what the model does does it do? `completeness`: is it all there is? `minimality`: is all of it
needed? `controls`: is it better than random circuits of its size? `greedy` and `top_n`: which circuit does pruning, or
a ranking of edges, find? `exact`: which circuits of a small model are minimal? `agreement`: how far from these is what
a search found?
"""

from mnemoscope.analyses.discovery.agreement import agreement as agreement
from mnemoscope.analyses.discovery.circuit import circuit as circuit
from mnemoscope.analyses.discovery.circuit import nodes as nodes
from mnemoscope.analyses.discovery.completeness import completeness as completeness
from mnemoscope.analyses.discovery.controls import against_random as against_random
from mnemoscope.analyses.discovery.exact import exact as exact
from mnemoscope.analyses.discovery.faithful import faithfulness as faithfulness
from mnemoscope.analyses.discovery.greedy import greedy as greedy
from mnemoscope.analyses.discovery.minimality import minimality as minimality
from mnemoscope.analyses.discovery.setting import Setting as Setting
from mnemoscope.analyses.discovery.top_n import top_n as top_n
