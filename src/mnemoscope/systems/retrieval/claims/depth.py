"""R1-models and R3: how many layers trained models need for each symbol of a chain of two steps."""

from collections.abc import Mapping

import numpy as np

from mnemoscope import CLAIMS, Configuration, Criterion, Subject
from mnemoscope.claims import Case, Explanation, Measured, Quantity, case, controls, most, table
from mnemoscope.models import untrained
from mnemoscope.systems.retrieval.analyses.reach import least_layers
from mnemoscope.systems.retrieval.claim_parts import FRESH_ERRORS, partial_errors, retrieval

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

_EXPLANATION = Explanation(
    procedure=f"Models of 1, 2 and 3 layers are trained with the same seed on chains of D = 2 steps. {FRESH_ERRORS} "
    "E(j, t) is that of symbol j after t layers, and L(j) the least t with E(j, t) below ½, or 4 where there is none. "
    "By the count of how far information can have come with a causal mask, symbol 1 needs 2 layers and symbol 2 needs "
    "3.",
    quantities={
        "more": Quantity(words="how many more layers the second symbol needs than the first", formula="L(2) − L(1)"),
        "miscounted": Quantity(
            words="by how many layers the two are off the count, together", formula="|L(1) − 2| + |L(2) − 3|"
        ),
        "below_reach": Quantity(
            words="the smallest error of a symbol with fewer layers than the count asks for",
            formula="min(E(1, 1), E(2, 1), E(2, 2))",
        ),
        "layers_x1": Quantity(words="the layers that the first symbol needs", formula="L(1)"),
        "layers_x2": Quantity(words="the layers that the second symbol needs", formula="L(2)"),
    },
    margins="An error of ½ is the source's threshold for learned. Layers are whole numbers, so that above or below "
    "half a layer is one or more, or none.",
    limits="It shows what this recipe finds at this width with D = 2, where the published models have D = 5. It does "
    "not show that more training would not do: a symbol that is not learned counts as needing more layers.",
)
_R3 = retrieval(
    id="R3",
    statement="Later symbols of a chain need more layers.",
    units=UNITS,
    measure=measure,
    compare=by_depth,
    prompts="own",
    parts=(most("more", "above", 0.5, _LAYERS),),
    explanation=_EXPLANATION,
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
    explanation=_EXPLANATION,
    parts=(Criterion(name="below_reach", quantifier="every", margin=HALF, direction="above", unit="squared error"),),
    controls=controls(positive=(_COUNTED, _DEEPER), negative=(_TOO_EARLY,)),
)
for _claim in (R3, R1_MODELS):
    CLAIMS.add(_claim.id, _claim)
