"""Transformers with weights set by hand, whose circuit is known: what analyses are tested on.

Each model has a function that builds it, whose docstring states the circuit, and one of the same name with
`_circuit` that names its residual dimensions, heads and neurons.
"""

from mnemoscope.models.constructed.bigram_table import bigram_table
from mnemoscope.models.constructed.circuit import Circuit
from mnemoscope.models.constructed.induction import induction, induction_batch, induction_circuit
from mnemoscope.models.constructed.layer_norm import layer_normalised
from mnemoscope.models.constructed.memory import (
    associative_memory,
    associative_memory_circuit,
    attention_memory,
    attention_memory_circuit,
    memory_batch,
)

__all__ = [
    "Circuit",
    "associative_memory",
    "associative_memory_circuit",
    "attention_memory",
    "attention_memory_circuit",
    "bigram_table",
    "induction",
    "induction_batch",
    "induction_circuit",
    "layer_normalised",
    "memory_batch",
]
