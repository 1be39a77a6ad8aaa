"""R1-models and R3: how many layers trained models need for each symbol of a chain of two steps."""

from collections.abc import Mapping

import numpy as np

from mnemoscope import CLAIMS, Configuration, Criterion, Subject
from mnemoscope.claims import Case, Measured, case, controls, most, table
from mnemoscope.models import untrained
from mnemoscope.systems.retrieval.analyses import least_layers
from mnemoscope.systems.retrieval.claim_parts import TEXTS, partial_errors, retrieval

DEPTHS = {f"retrieval-2-{n}-layer{'s' * (n > 1)}": n for n in (1, 2, 3)}
UNITS = {name: Configuration(preset=name) for name in DEPTHS}
SYMBOLS = ("x1", "x2")
COUNTED = {symbol: least_layers(step, mask="forward") for step, symbol in enumerate(SYMBOLS, 1)}
HALF = 0.5


def measure(subject: Subject) -> Measured:
    """Squared error of either symbol (`x1`, `x2`), sequence by sequence."""
    return partial_errors(subject)


def by_depth(measured: Mapping[str, Measured]) -> Measured:
    """The effects of one seed, and the least layers of each symbol (`layers_x1`, `layers_x2`)."""
    each = {(symbol, n): measured[name][symbol] for name, n in DEPTHS.items() for symbol in SYMBOLS}
    errors = {of: float(np.mean(values)) for of, values in each.items()}
    none = 1 + max(DEPTHS.values())
    least = {symbol: next((n for n in DEPTHS.values() if errors[symbol, n] < HALF), none) for symbol in SYMBOLS}
    return {
        "more": least["x2"] - least["x1"],
        "miscounted": sum(abs(least[symbol] - COUNTED[symbol]) for symbol in SYMBOLS),
        "below_reach": each[min((of for of in each if of[1] < COUNTED[of[0]]), key=errors.__getitem__)],
        **{f"layers_{symbol}": n for symbol, n in least.items()},
    }


def _planted(name: str, x1: int, x2: int) -> Case:
    """A planted outcome: the layers from which either symbol is learned."""
    errors = {
        unit: {symbol: 0.02 if n >= needed else 0.75 for symbol, needed in (("x1", x1), ("x2", x2))}
        for unit, n in DEPTHS.items()
    }
    return table(name, errors)


_COUNTED, _DEEPER = _planted("as counted", 2, 3), _planted("a layer more than counted", 3, 4)
_ALIKE, _TOO_EARLY = _planted("alike", 3, 3), _planted("before anything can be known", 1, 2)
_UNTRAINED = case("untrained", untrained(UNITS))
_LAYERS = "layers"

_R3 = retrieval(
    id="R3",
    statement="Later symbols of a chain need more layers.",
    units=UNITS,
    measure=measure,
    compare=by_depth,
    prompts="own",
    parts=(most("more", "above", 0.5, _LAYERS),),
    explanation=TEXTS.explain("R3"),
    controls=controls(positive=(_COUNTED, _DEEPER), negative=(_ALIKE, _UNTRAINED)),
)
R3 = _R3.against(
    _R3.rival(
        "counted",
        "Each symbol is learned with just as many layers as could do by the count.",
        parts=(most("miscounted", "below", 0.5, _LAYERS),),
        controls=controls(positive=(_COUNTED,), negative=(_DEEPER, _ALIKE, _UNTRAINED)),
    ),
)
R1_MODELS = retrieval(
    id="R1-models",
    statement="With fewer layers than the count asks for, a symbol is not learned.",
    units=UNITS,
    measure=measure,
    compare=by_depth,
    prompts="own",
    explanation=TEXTS.explain("R1-models"),
    parts=(Criterion(name="below_reach", quantifier="every", margin=HALF, direction="above", unit="squared error"),),
    controls=controls(positive=(_COUNTED, _DEEPER), negative=(_TOO_EARLY,)),
)
for _claim in (R3, R1_MODELS):
    CLAIMS.add(_claim.id, _claim)
