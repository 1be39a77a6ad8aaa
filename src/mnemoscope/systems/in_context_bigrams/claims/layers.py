"""B1 and B2: what one layer and two layers make of outputs that must be read from the context.

B1, "one layer fails, with about 55 % on in-context outputs", is refuted if its accuracy is not within ten points of
that. Rivals: more than ten points of it are cheap, since a trigger that is its own output fills the rest of its
sequence with itself; accuracy is below 30 %.

B2, "two layers succeed, with about 99 %", is refuted if they stay at 98 % or below. Rivals: they get over 90 %; the
second layer is worth more than 25 points. The triggers are the same five tokens in every sequence, for both depths.

Accuracy is the share of right answers where a trigger stands that has occurred before, on 512 fresh sequences of the
split `test`; of equally likely tokens each gets its share. What loops are worth is that accuracy less the accuracy on
sequences in which no trigger is its own output, so its standard error is that of the share of loops, about .02.

They show what training finds at this width with this recipe. They do not show what one layer could do at best, nor how
the second one does better.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch

from mnemoscope import CLAIMS, Claim, Configuration, Control, Criterion, HookedModel, Subject
from mnemoscope.core import one_of
from mnemoscope.judging import Measured
from mnemoscope.models import planted, untrained
from mnemoscope.models.constructed import bigram_table, induction
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import accuracy_by_class
from mnemoscope.systems.in_context_bigrams.analyses.prompts import prompts
from mnemoscope.systems.in_context_bigrams.tasks.in_context_bigrams import InContextBigrams

SOURCE = "Bietti et al. 2023, Birth of a Transformer, as presented"
N_SEQUENCES = 512
PUBLISHED = 0.55
"""Accuracy of one layer."""
TASK = InContextBigrams(length=64, triggers="fixed")
"""Of planted models: shorter, which is faster."""
ONE, TWO = "birth-1-layer", "birth-fixed"
ONE_LAYER = {ONE: Configuration(preset=ONE)}
DEPTHS = {name: Configuration(preset=name) for name in (ONE, TWO)}


def measure(subject: Subject, *, loops: bool = True, positions: str = "in_context") -> dict[str, float]:
    """Accuracy (0 to 1) on fresh sequences, with or without loops: how far from the published one of one layer
    (`distance`), and how much less it is without loops (`from_loops`).

    Args:
        subject: The model and its task.
        loops: Whether a trigger may be its own output in the sequences of `accuracy` and `distance`.
        positions: The class of positions that counts, one of `position_classes`.

    Raises:
        InputError: There is no such class, or the task is another one.
    """
    by_loops = {}
    for allowed in (True, False):
        found = accuracy_by_class(subject.model, prompts(subject.task, subject.seed, N_SEQUENCES, loops=allowed))
        one_of("positions", positions, found)
        by_loops[allowed] = found[positions]
    accuracy = by_loops[loops]
    return {
        "accuracy": accuracy,
        "distance": abs(accuracy - PUBLISHED),
        "from_loops": by_loops[True] - by_loops[False],
    }


def by_depth(measured: Mapping[str, Measured]) -> Measured:
    """Accuracy of `two_layers` and of `one_layer`, and what the second layer is worth (`depth`)."""
    one, two = (measured[name]["accuracy"] for name in (ONE, TWO))
    return {"two_layers": two, "one_layer": one, "depth": two - one}


def says_it_again() -> HookedModel:
    """A model that always names the current token: right in loops, and else almost never."""
    return bigram_table(torch.eye(TASK.d_vocab), TASK.n_ctx)


def reads_the_context() -> HookedModel:
    """The induction circuit."""
    return induction(TASK.d_vocab, TASK.n_ctx)


def _table(case: int, *, accuracy: float, from_loops: float = 0.2) -> dict[str, dict[str, float]]:
    """A planted outcome for one layer."""
    return {ONE: {"accuracy": accuracy, "distance": abs(accuracy - PUBLISHED), "from_loops": from_loops}}


def _accuracies(case: int, *, one: float, two: float) -> dict[str, dict[str, float]]:
    """A planted outcome for both depths."""
    return {ONE: {"accuracy": one}, TWO: {"accuracy": two}}


def _models(case: int, *, one: Callable[[], HookedModel], two: Callable[[], HookedModel]) -> dict[str, Subject]:
    """Planted models for both depths."""
    return planted(ONE, one, TASK)(case) | planted(TWO, two, TASK)(case)


_part = partial(Criterion, quantifier="most", unit="accuracy")
_control = partial(Control, n=1)
_AGAIN, _READS = planted(ONE, says_it_again, TASK), planted(ONE, reads_the_context, TASK)
_NEITHER = Control(name="untrained", kind="negative", plant=untrained(DEPTHS))
_FACTORS = {"loops": (False,), "positions": ("second", "later")}

_B1 = Claim(
    id="B1",
    statement="One layer fails: it gets about 55 % of in-context outputs right.",
    system="birth",
    source=SOURCE,
    measure=measure,
    units=ONE_LAYER,
    parts=(_part(name="distance", margin=0.1, direction="below"),),
    factors=_FACTORS,
    controls=(
        _control(name="near 55 %", kind="positive", plant=partial(_table, accuracy=0.6)),
        _control(name="a margin off", kind="negative", plant=partial(_table, accuracy=0.65)),
        Control(name="reads the context", kind="negative", plant=_READS),
        Control(name="untrained", kind="negative", plant=untrained(ONE_LAYER)),
    ),
)
B1 = _B1.against(
    _B1.rival(
        "loops",
        "Of that accuracy more than ten points come from triggers that are their own output.",
        source=f"against {SOURCE}",
        parts=(_part(name="from_loops", margin=0.1),),
        controls=(
            Control(name="says it again", kind="positive", plant=_AGAIN),
            Control(name="reads the context", kind="negative", plant=_READS),
            _control(name="a margin from loops", kind="negative", plant=partial(_table, accuracy=0.6, from_loops=0.1)),
        ),
    ),
    _B1.rival(
        "chance",
        "One layer gets less than 30 % of in-context outputs right.",
        source=f"against {SOURCE}",
        parts=(_part(name="accuracy", margin=0.3, direction="below"),),
        controls=(
            Control(name="untrained", kind="positive", plant=untrained(ONE_LAYER)),
            Control(name="reads the context", kind="negative", plant=_READS),
            _control(name="at the margin", kind="negative", plant=partial(_table, accuracy=0.3)),
        ),
    ),
)
_DEEP = partial(_models, one=says_it_again, two=reads_the_context)
_B2 = Claim(
    id="B2",
    statement="Two layers succeed: they get about 99 % of in-context outputs right.",
    system="birth",
    source=SOURCE,
    measure=measure,
    units=DEPTHS,
    compare=by_depth,
    parts=(_part(name="two_layers", margin=0.98),),
    factors=_FACTORS,
    controls=(
        Control(name="two layers read the context", kind="positive", plant=_DEEP),
        _control(name="at the margin", kind="negative", plant=partial(_accuracies, one=0.55, two=0.98)),
        _NEITHER,
    ),
)
B2 = _B2.against(
    _B2.rival(
        "nearly",
        "Two layers get over 90 % of in-context outputs right, and possibly no more.",
        source=f"against {SOURCE}",
        parts=(_part(name="two_layers", margin=0.9),),
        controls=(
            Control(name="two layers read the context", kind="positive", plant=_DEEP),
            _control(name="at the margin", kind="negative", plant=partial(_accuracies, one=0.55, two=0.9)),
            _NEITHER,
        ),
    ),
    _B2.rival(
        "depth",
        "The second layer is worth more than 25 points.",
        source=f"{SOURCE}: the two accuracies stand side by side",
        parts=(_part(name="depth", margin=0.25),),
        controls=(
            Control(name="only two layers read the context", kind="positive", plant=_DEEP),
            Control(
                name="both read the context",
                kind="negative",
                plant=partial(_models, one=reads_the_context, two=reads_the_context),
            ),
            _control(name="a margin apart", kind="negative", plant=partial(_accuracies, one=0.7, two=0.95)),
        ),
    ),
)
CLAIMS.add(B1.id, B1)
CLAIMS.add(B2.id, B2)
