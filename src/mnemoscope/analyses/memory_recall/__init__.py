"""Whether a matrix holds a memory: the share of a list of associations that it recalls.

`score`: how many associations does a matrix recall, beside chance and permuted targets? `matrices`: which matrices and
vectors of a model can be asked, by name. `memories`: the three memories of an induction head, and the
scores behind them.
"""

from mnemoscope.analyses.memory_recall.matrices import embeddings as embeddings
from mnemoscope.analyses.memory_recall.matrices import product as product
from mnemoscope.analyses.memory_recall.matrices import weight as weight
from mnemoscope.analyses.memory_recall.memories import copied_token as copied_token
from mnemoscope.analyses.memory_recall.memories import induction_memories as induction_memories
from mnemoscope.analyses.memory_recall.memories import memory_maps as memory_maps
from mnemoscope.analyses.memory_recall.memories import previous_token as previous_token
from mnemoscope.analyses.memory_recall.memories import remapped_copy as remapped_copy
from mnemoscope.analyses.memory_recall.score import Association as Association
from mnemoscope.analyses.memory_recall.score import recall as recall
