"""Measurements on models that read a token's successor from the context: in-context bigrams, and noisy recall.

`evaluation`: the sequences, the gate of claims about mechanisms, and predictions by class of position.
`heads`: attention as of an induction head; `memories`: its three memories.
`causal`: what patterns are worth. `feed_forward`: global bigrams in an MLP.
`trajectory`: all measures along training, and their onsets. `noise_or_context`, `noise_samples`: the noise token.
`gradient_memories`: what single gradient steps store.
"""

from mnemoscope.systems.in_context_bigrams.analyses.causal import pattern_costs as pattern_costs
from mnemoscope.systems.in_context_bigrams.analyses.causal import removal_costs as removal_costs
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import LEARNED as LEARNED
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import accuracy_by_class as accuracy_by_class
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import evaluate_by_class as evaluate_by_class
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import learned as learned
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import position_classes as position_classes
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import prompts as prompts
from mnemoscope.systems.in_context_bigrams.analyses.heads import head_attention as head_attention
from mnemoscope.systems.in_context_bigrams.analyses.heads import marked_patterns as marked_patterns
from mnemoscope.systems.in_context_bigrams.analyses.memories import LEAST as LEAST
from mnemoscope.systems.in_context_bigrams.analyses.memories import Over as Over
from mnemoscope.systems.in_context_bigrams.analyses.memories import copied_token as copied_token
from mnemoscope.systems.in_context_bigrams.analyses.memories import induction_memories as induction_memories
from mnemoscope.systems.in_context_bigrams.analyses.memories import memory_maps as memory_maps
from mnemoscope.systems.in_context_bigrams.analyses.memories import previous_token as previous_token
from mnemoscope.systems.in_context_bigrams.analyses.memories import remapped_copy as remapped_copy
from mnemoscope.systems.in_context_bigrams.analyses.trajectory import learning_order as learning_order
from mnemoscope.systems.in_context_bigrams.analyses.trajectory import trajectory as trajectory
