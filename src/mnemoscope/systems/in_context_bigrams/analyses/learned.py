"""Which models have learned to read outputs from the context: their in-context accuracy.

It shows that a model has learned the skill; it does not show how it does it. Part of it needs no such skill: in a
sequence whose trigger is its own output, the last token goes on.
"""

from mnemoscope import Gate, Subject
from mnemoscope.core import kept
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import accuracy_by_class
from mnemoscope.systems.in_context_bigrams.analyses.prompts import prompts

LEARNED = Gate(
    statement="names the output of a trigger that has occurred before in 80 % of unseen sequences' positions or more",
    at_least=0.8,
)
"""Which models a claim about a mechanism speaks of; the gate looks at `learned`."""


@kept  # every measure of a gated claim asks for it again
def learned(subject: Subject) -> float:
    """In-context accuracy on fresh sequences of the split `test`, what a gate looks at.

    Raises:
        InputError: The task is another one, or the model is too small for it.
    """
    return accuracy_by_class(subject.model, prompts(subject.task, subject.seed))["in_context"]
