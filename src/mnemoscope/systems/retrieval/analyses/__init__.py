"""What is measured on models that solve the retrieval problem, and what could be known without one.

`reach`: after how many layers can a position know what stands elsewhere?
"""

from mnemoscope.systems.retrieval.analyses.reach import bound as bound
from mnemoscope.systems.retrieval.analyses.reach import first_layers as first_layers
from mnemoscope.systems.retrieval.analyses.reach import least_layers as least_layers
