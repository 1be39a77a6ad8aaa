"""Measurements on models that solve the retrieval problem, and what could be known without one.

`reach`: the layers after which a position can know what stands elsewhere. `chain_attention`: attention of each head
from one place of a chain to another. `circuit`: the paths among these that a model needs.
"""

from mnemoscope.systems.retrieval.analyses.chain_attention import chain_attention as chain_attention
from mnemoscope.systems.retrieval.analyses.circuit import chain_circuit as chain_circuit
from mnemoscope.systems.retrieval.analyses.circuit import path_table as path_table
from mnemoscope.systems.retrieval.analyses.reach import bound as bound
from mnemoscope.systems.retrieval.analyses.reach import first_layers as first_layers
from mnemoscope.systems.retrieval.analyses.reach import least_layers as least_layers
