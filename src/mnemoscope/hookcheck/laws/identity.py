"""Identities: what should change nothing changes nothing, bit for bit."""

from collections.abc import Iterator

from mnemoscope.hookcheck.law import Comparison, Family
from mnemoscope.hookcheck.mutants import Faulty
from mnemoscope.hookcheck.subject import TestSubject

FAMILY = Family(name="identity", analyses=("ablate", "patch", "edges", "discover"))


def _drifts(good):
    """Each run of the model adds more to the logits than the one before."""
    runs = []

    def drift(logits):
        runs.append(None)
        return logits + 1e-3 * len(runs)

    return Faulty(good, output=drift)


@FAMILY.law(
    reason="An effect is the difference of two runs; a model that does not repeat itself has effects of nothing.",
    mutant=_drifts,
    threads=("nnsight #607",),
)
def equal_inputs_give_equal_outputs(subject: TestSubject) -> Iterator[Comparison]:
    """Two runs on the same prompts give the same logits."""
    first, second = (subject.run(reads=()) for _ in range(2))
    yield Comparison(point="logits", got=second.logits, wanted=first.logits, exact=True)
