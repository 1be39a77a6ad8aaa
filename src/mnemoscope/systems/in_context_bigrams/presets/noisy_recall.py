"""The transformer on noisy recall, and the plan."""

from mnemoscope import PRESETS, SYSTEMS
from mnemoscope.systems.in_context_bigrams.presets import generic, plan
from mnemoscope.systems.in_context_bigrams.tasks.noisy_recall import NoisyRecall

_SUMMARY = "2 layers, fixed triggers, half of the outputs replaced by noise"
PRESETS.add("noisy-recall", generic(_SUMMARY, NoisyRecall(length=128), n_steps=1000, published=(256, 1024)))
SYSTEMS.add("noisy-recall", plan("in-context recall against a noise token that always may follow", ("noisy-recall",)))
