"""Models that read a token's successor from the context: in-context bigrams, and noisy recall.

`prompts`: sequences that are kept. `evaluation`: how well does a model predict, by what stands at a position? `heads`:
do heads attend as an induction head does? `causal`: what are their patterns worth? `learned`: the gate of claims about
mechanisms. `trajectory`: everything that is followed along training. `onsets`, `order`: when it sets in, and what comes
first. `example`: single sequences, to look at.
"""

from mnemoscope.systems.in_context_bigrams.analyses.causal import pattern_costs as pattern_costs
from mnemoscope.systems.in_context_bigrams.analyses.causal import removal_costs as removal_costs
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import accuracy_by_class as accuracy_by_class
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import evaluate_by_class as evaluate_by_class
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import position_classes as position_classes
from mnemoscope.systems.in_context_bigrams.analyses.example import marked_patterns as marked_patterns
from mnemoscope.systems.in_context_bigrams.analyses.heads import head_attention as head_attention
from mnemoscope.systems.in_context_bigrams.analyses.learned import LEARNED as LEARNED
from mnemoscope.systems.in_context_bigrams.analyses.learned import learned as learned
from mnemoscope.systems.in_context_bigrams.analyses.order import learning_order as learning_order
from mnemoscope.systems.in_context_bigrams.analyses.prompts import prompts as prompts
from mnemoscope.systems.in_context_bigrams.analyses.trajectory import trajectory as trajectory
