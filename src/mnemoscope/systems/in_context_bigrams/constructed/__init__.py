"""Transformers with weights set by hand that predict in-context bigrams by a known circuit."""

from mnemoscope.systems.in_context_bigrams.constructed.induction_memories import (
    induction_memories as induction_memories,
)
from mnemoscope.systems.in_context_bigrams.constructed.noisy_induction import noisy_induction as noisy_induction
from mnemoscope.systems.in_context_bigrams.constructed.noisy_induction import (
    noisy_induction_circuit as noisy_induction_circuit,
)
from mnemoscope.systems.in_context_bigrams.constructed.trigger_induction import trigger_induction as trigger_induction
from mnemoscope.systems.in_context_bigrams.constructed.trigger_induction import (
    trigger_induction_circuit as trigger_induction_circuit,
)
