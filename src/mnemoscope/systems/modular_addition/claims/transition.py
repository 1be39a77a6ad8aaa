"""C2: between pizzas and clocks there is a transition in the share of the softmax, not a slope.

Six models of one seed differ in the share c alone. The two courses are compared by what they explain of a number's
variance over the six: the best step (a mean below and one above a place between two neighbours), and the best straight
line in c. A step in the middle leaves a line .77 of the variance and the other way round, so that neither is favoured.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from mnemoscope import CLAIMS, Subject
from mnemoscope.claims import GATE, Case, Measured, controls, most, table
from mnemoscope.systems.modular_addition.analyses.gradients import irrelevance, symmetricity
from mnemoscope.systems.modular_addition.claim_parts import LEARNED, TEXTS, accuracy, addition_claim, task_of, units
from mnemoscope.systems.modular_addition.presets import MIXES

UNITS = units(*MIXES)
DROP = 0.2
_R2 = "difference of shares"


def measure(subject: Subject) -> dict[str, float]:
    """Both numbers and the accuracy."""
    task = task_of(subject)
    return {
        "symmetricity": symmetricity(subject.model, task),
        "irrelevance": irrelevance(subject.model, task),
        "accuracy": accuracy(subject),
    }


def step_less_line(mixes: Sequence[float], values: Sequence[float]) -> float:
    """R² of the best step less R² of the best line; 0 where the values are all alike."""
    x, y = np.array(mixes), np.array(values)
    whole = float(((y - y.mean()) ** 2).sum())
    if whole < 1e-12:
        return 0.0
    line = np.polynomial.Polynomial.fit(x, y, 1)(x)
    steps = [np.where(x < edge, y[x < edge].mean(), y[x >= edge].mean()) for edge in x[1:]]
    rests = [float(((y - fitted) ** 2).sum()) for fitted in (line, *steps)]
    return (rests[0] - min(rests[1:])) / whole


def compared(measured: Mapping[str, Measured]) -> Measured:
    """The drop of symmetricity from c = 0 to 1, the step less the line for both numbers, and every model's numbers."""
    mixes = list(MIXES.values())
    numbers = {name: [float(measured[unit][name]) for unit in MIXES] for name in ("symmetricity", "irrelevance")}
    return {
        "drop": numbers["symmetricity"][0] - numbers["symmetricity"][-1],
        **{f"{name}_step": step_less_line(mixes, values) for name, values in numbers.items()},
        **{
            f"{name}_{unit.removeprefix('addition-')}": value
            for name, values in numbers.items()
            for unit, value in zip(MIXES, values, strict=True)
        },
        GATE: min(float(measured[unit]["accuracy"]) for unit in MIXES),
    }


def _planted(name: str, symmetric: Sequence[float], irrelevant: Sequence[float]) -> Case:
    """A control of numbers, one for every share of the softmax."""
    rows = zip(MIXES, symmetric, irrelevant, strict=True)
    return table(name, {unit: {"symmetricity": s, "irrelevance": i, "accuracy": 1.0} for unit, s, i in rows})


_STEP = _planted("a step", (0.98, 0.97, 0.98, 0.5, 0.45, 0.46), (0.4, 0.41, 0.4, 0.8, 0.82, 0.81))
_SLOPE = _planted("a slope", (0.98, 0.88, 0.8, 0.64, 0.56, 0.46), (0.4, 0.48, 0.54, 0.68, 0.73, 0.82))
_FLAT = _planted("nothing", (0.97, 0.98, 0.98, 0.97, 0.98, 0.97), (0.4, 0.41, 0.4, 0.4, 0.41, 0.4))
_C2 = addition_claim(
    id="C2",
    statement="From pizzas to clocks there is a transition in the share of the softmax, not a slope.",
    units=UNITS,
    gate=LEARNED,
    measure=measure,
    compare=compared,
    explanation=TEXTS.explain("C2", drop=DROP),
    prompts="enumerated",
    develops=False,
    parts=(
        most("drop", "above", DROP, "cosine"),
        most("symmetricity_step", "above", 0, _R2),
        most("irrelevance_step", "above", 0, _R2),
    ),
    controls=controls(positive=(_STEP,), negative=(_SLOPE, _FLAT)),
)
C2 = _C2.against(
    _C2.rival(
        "slope",
        "Symmetricity falls in a straight line.",
        parts=(most("drop", "above", DROP, "cosine"), most("symmetricity_step", "below", 0, _R2)),
        controls=controls(positive=(_SLOPE,), negative=(_STEP, _FLAT)),
    ),
)
CLAIMS.add(C2.id, C2)
