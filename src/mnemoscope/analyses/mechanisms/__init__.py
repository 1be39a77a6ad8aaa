"""Attention mechanisms: put in the place of heads, searched, and looked for in what was learned."""

from mnemoscope.analyses.mechanisms.paths import remove_paths as remove_paths
from mnemoscope.analyses.mechanisms.replacement import replace_each as replace_each
from mnemoscope.analyses.mechanisms.replacement import replace_heads as replace_heads
from mnemoscope.analyses.mechanisms.scores import attention_by_mechanism as attention_by_mechanism
from mnemoscope.analyses.mechanisms.scores import head_scores as head_scores
from mnemoscope.analyses.mechanisms.search import read_heads as read_heads
from mnemoscope.analyses.mechanisms.search import reverse_engineer as reverse_engineer
