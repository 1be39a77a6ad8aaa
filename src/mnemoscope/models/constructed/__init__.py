"""Transformers with weights set by hand, whose circuit is known: what analyses are tested on.

Each model has a function that builds it, whose docstring states the circuit, and one of the same name with
`_circuit` that names its residual dimensions, heads and neurons.
"""

from mnemoscope.models.constructed.bigrams import bigram_table
from mnemoscope.models.constructed.circuit import Circuit
from mnemoscope.models.constructed.dissociated import dissociated, dissociated_circuit
from mnemoscope.models.constructed.elimination import elimination_only, elimination_only_circuit
from mnemoscope.models.constructed.induction import induction, induction_batch, induction_circuit
from mnemoscope.models.constructed.induction_memories import induction_memories
from mnemoscope.models.constructed.layer_norm import layer_normalised
from mnemoscope.models.constructed.local_binding import local_binding, local_binding_circuit
from mnemoscope.models.constructed.memory import (
    associative_memory,
    associative_memory_circuit,
    attention_memory,
    attention_memory_circuit,
    memory_batch,
)
from mnemoscope.models.constructed.noisy_induction import noisy_induction, noisy_induction_circuit
from mnemoscope.models.constructed.partial_recall import partial_recall
from mnemoscope.models.constructed.shared_store import shared_store, shared_store_circuit
from mnemoscope.models.constructed.store_and_match import store_and_match, store_and_match_circuit
from mnemoscope.models.constructed.trigger_induction import trigger_induction, trigger_induction_circuit
from mnemoscope.models.constructed.twin_elimination import twin_elimination, twin_elimination_circuit
from mnemoscope.models.constructed.two_layer_recall import two_layer_recall, two_layer_recall_circuit

__all__ = [
    "Circuit",
    "associative_memory",
    "associative_memory_circuit",
    "attention_memory",
    "attention_memory_circuit",
    "bigram_table",
    "dissociated",
    "dissociated_circuit",
    "elimination_only",
    "elimination_only_circuit",
    "induction",
    "induction_batch",
    "induction_circuit",
    "induction_memories",
    "layer_normalised",
    "local_binding",
    "local_binding_circuit",
    "memory_batch",
    "noisy_induction",
    "noisy_induction_circuit",
    "partial_recall",
    "shared_store",
    "shared_store_circuit",
    "store_and_match",
    "store_and_match_circuit",
    "trigger_induction",
    "trigger_induction_circuit",
    "twin_elimination",
    "twin_elimination_circuit",
    "two_layer_recall",
    "two_layer_recall_circuit",
]
