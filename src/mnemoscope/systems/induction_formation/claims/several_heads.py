"""I1: several heads of layer 1 become induction heads; each is enough alone and none is needed, and alone is slower.

That they add up is measured (`heads.heads_alone`) and decides nothing: heads of one layer write to one stream.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np

from mnemoscope import CLAIMS, HookedModel, Subject
from mnemoscope.claims import GATE, Measured, controls, most, table
from mnemoscope.systems.induction_formation.analyses.courses import change
from mnemoscope.systems.induction_formation.analyses.heads import STRONG, heads_alone, strengths
from mnemoscope.systems.induction_formation.claim_parts import (
    BASE,
    HAND_TASK,
    LEARNED,
    LOG2,
    ONE_HEAD,
    RATIO,
    TEXTS,
    course,
    formation_claim,
    later,
    planted,
    prompts_of,
    units,
    waits,
)
from mnemoscope.systems.induction_formation.constructed import copier, induction

UNITS = units(BASE, ONE_HEAD)
ENOUGH, NEEDED = 0.9, 0.1


def measure(subject: Subject, *, strong: float = STRONG, level: float = 0.5) -> dict[str, float]:
    """Numbers of strong heads, accuracies alone and without, and the step of the change."""
    batch = prompts_of(subject)
    found, kept = strengths(subject.model, batch).induction, heads_alone(subject.model, batch)
    alone = np.sort(kept.accuracy.sel(kept="alone").values)[::-1]
    return {
        "n_strong": float((found >= strong).sum()),
        "alone": float(alone[1]),
        "best_alone": float(alone[0]),
        "lost": float(kept.all_accuracy - kept.accuracy.sel(kept="without").min()),
        "additive": float(kept.additive),
        "accuracy": float(kept.all_accuracy),
        "change": change(course(subject), level=level),
    }


def compared(measured: Mapping[str, Measured]) -> Measured:
    """The numbers of the whole model, and how much later the change comes with one head."""
    whole = measured[BASE]
    steps = {name: float(each["change"]) for name, each in measured.items()}
    return {
        **{name: whole[name] for name in ("n_strong", "alone", "best_alone", "lost", "additive")},
        "later": later(steps, ONE_HEAD, BASE),
        **{f"{name} change": step for name, step in steps.items()},
        GATE: whole["accuracy"],
    }


def by_hand(n_previous: int, n_induction: int) -> HookedModel:
    """Induction by so many heads."""
    return induction(HAND_TASK, n_previous=n_previous, n_induction=n_induction)


def copier_by_hand() -> HookedModel:
    """Both labels alike."""
    return copier(HAND_TASK)


_SLOWER, _ALIKE = {BASE: waits(300, 100), ONE_HEAD: waits(700, 100)}, {BASE: waits(300, 100), ONE_HEAD: waits(300, 100)}
_FOUR = planted("four heads, one alone is slower", UNITS, _SLOWER, models={BASE: partial(by_hand, 1, 4)})
_SINGLE = planted("one head does it", UNITS, _SLOWER, models={BASE: partial(by_hand, 1, 1)})
_FAST = planted("four heads, one alone is as fast", UNITS, _ALIKE, models={BASE: partial(by_hand, 1, 4)})
_COPIER = planted("a copier of both labels", UNITS, _SLOWER, models={BASE: copier_by_hand})
_UNTRAINED = planted("untrained", UNITS, _SLOWER, n=4)
_SHARED = table(
    "heads that are too weak alone",
    {
        BASE: {
            "n_strong": 4,
            "alone": 0.7,
            "best_alone": 0.8,
            "lost": 0.02,
            "additive": 1,
            "accuracy": 1,
            "change": 400,
        },
        ONE_HEAD: {"change": 800.0},
    },
)
_I1 = formation_claim(
    id="I1",
    statement="Several heads become induction heads; each is enough alone, none is needed, and one alone is slower.",
    units=UNITS,
    gate=LEARNED,
    measure=measure,
    compare=compared,
    explanation=TEXTS.explain("I1", enough=ENOUGH, needed=NEEDED),
    prompts="own",
    develops=False,
    parts=(
        most("n_strong", "above", 1.5, "heads"),
        most("alone", "above", ENOUGH, "accuracy"),
        most("lost", "below", NEEDED, "accuracy"),
        most("later", "above", RATIO, LOG2),
    ),
    factors={"strong": (0.5,), "level": (0.25,), "recipe": ("published",)},
    controls=controls(positive=(_FOUR,), negative=(_SINGLE, _FAST, _SHARED, _COPIER, _UNTRAINED)),
)
I1 = _I1.against(
    _I1.rival(
        "single",
        "One head does it: without it the answer is lost.",
        parts=(most("lost", "above", NEEDED, "accuracy"),),
        controls=controls(positive=(_SINGLE,), negative=(_FOUR, _SHARED)),
    ),
    _I1.rival(
        "shared",
        "The heads share the work: none is needed, and no two are enough alone.",
        parts=(most("lost", "below", NEEDED, "accuracy"), most("alone", "below", ENOUGH, "accuracy")),
        controls=controls(positive=(_SHARED,), negative=(_FOUR, _SINGLE)),
    ),
)
CLAIMS.add(I1.id, I1)
