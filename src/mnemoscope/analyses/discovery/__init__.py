"""Circuits on the graph of a model's edges: what they are measured on, searches for them, and their quality."""

from mnemoscope.analyses.discovery.criteria import against_random as against_random
from mnemoscope.analyses.discovery.criteria import completeness as completeness
from mnemoscope.analyses.discovery.criteria import faithfulness as faithfulness
from mnemoscope.analyses.discovery.criteria import minimality as minimality
from mnemoscope.analyses.discovery.rankings import CIRCUIT_SEARCHES as CIRCUIT_SEARCHES
from mnemoscope.analyses.discovery.rankings import CircuitSearch as CircuitSearch
from mnemoscope.analyses.discovery.searches import compare_with_exact as compare_with_exact
from mnemoscope.analyses.discovery.searches import exhaustive_search as exhaustive_search
from mnemoscope.analyses.discovery.searches import greedy as greedy
from mnemoscope.analyses.discovery.searches import top_n as top_n
from mnemoscope.analyses.discovery.seed_overlap import seed_stability as seed_stability
from mnemoscope.analyses.discovery.setting import Setting as Setting
from mnemoscope.analyses.discovery.setting import circuit as circuit
from mnemoscope.analyses.discovery.setting import circuit_nodes as circuit_nodes
from mnemoscope.analyses.discovery.stability import circuit_stability as circuit_stability
from mnemoscope.analyses.discovery.stability import resample_pairs as resample_pairs
