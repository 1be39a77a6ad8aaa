"""M1, M2 and M3: what gradient steps from zero store in associative memories.

Sizes and step sizes (`analyses.gradient_memories.three_steps.SETTINGS`) were chosen on draws from 100 on.
"""

import math
from functools import partial
from typing import Any

from mnemoscope import CLAIMS
from mnemoscope.claims import EFFECT, Measured, case, controls, most
from mnemoscope.models import FIRST_CONTROL_SEED
from mnemoscope.systems.in_context_bigrams.analyses.gradient_memories.one_step import (
    against_autograd,
    recalled_after_one_step,
)
from mnemoscope.systems.in_context_bigrams.analyses.gradient_memories.three_steps import ORDER, three_steps
from mnemoscope.systems.in_context_bigrams.claim_parts import TEXTS, birth

N_INPUTS, WIDTH, NARROW = 64, 128, 32
RECALLED = 0.9
_RECALL = "share recalled"


def measure_gradient(draw: int) -> dict[str, float]:
    """Logarithm of the largest relative difference between the formula and autograd over eight random problems."""
    return {EFFECT: _digits(float(against_autograd(seed=draw).difference.max()))}


def _digits(difference: float) -> float:
    """Decimal logarithm; of nothing, that of less than float64 can tell."""
    return math.log10(max(difference, 1e-18))


def measure_step(draw: int, *, d: int = WIDTH) -> dict[str, float]:
    """Recall after one step with embeddings of width d (`effect`), and with narrow ones (`narrow`)."""
    widths = {EFFECT: d, "narrow": NARROW}
    return {name: recalled_after_one_step(N_INPUTS, width, seed=draw) for name, width in widths.items()}


def measure_steps(draw: int, *, embeddings: str = "random") -> dict[str, float]:
    """Recall of the three matrices after one step each, and the model's accuracy at repeated triggers."""
    return _recalls(draw, embeddings=embeddings)


def measure_reversed(draw: int, *, embeddings: str = "random") -> dict[str, float]:
    """The same after the same steps in the reverse order; arguments and errors as for `measure_steps`."""
    return _recalls(draw, embeddings=embeddings, order=ORDER[::-1])


def _recalls(draw: int, **options: Any) -> dict[str, float]:
    found = three_steps(seed=draw, **options)
    return {**{name: float(found.recall.sel(memory=name)) for name in ORDER}, "accuracy": float(found.accuracy)}


def formula(number: int) -> dict[str, Measured]:
    """A control: the right formula on other problems."""
    return {"draw": measure_gradient(FIRST_CONTROL_SEED + number)}


def without_predictions(number: int) -> dict[str, Measured]:
    """A control: a wrong formula, which leaves out what the model predicts."""
    found = against_autograd(seed=FIRST_CONTROL_SEED + number)
    return {"draw": {EFFECT: _digits(float(found.difference_without_predictions.max()))}}


def stored(number: int, *, d: int, permuted: bool = False) -> dict[str, Measured]:
    """A control: one step in d dimensions, scored on what it stores or on permuted answers."""
    share = recalled_after_one_step(N_INPUTS, d, seed=FIRST_CONTROL_SEED + number, permuted=permuted)
    return {"draw": {EFFECT: share, "narrow": share}}


def planted_steps(number: int, *, permuted: bool = False, backwards: bool = False) -> dict[str, Measured]:
    """A control: three steps with orthonormal embeddings, with true or permuted targets, in either order."""
    order = ORDER[::-1] if backwards else ORDER
    draw = FIRST_CONTROL_SEED + number
    return {"draw": _recalls(draw, embeddings="orthonormal", permuted=permuted, order=order)}


_of_draws = partial(birth, source="Bietti et al. 2023", replicate="draw", develops=False)
_ALL_THREE = tuple(most(name, "above", RECALLED, _RECALL) for name in ORDER)
_WIDE = case("1024 dimensions", partial(stored, d=1024))
_THREE_STEPS = case("orthonormal embeddings", planted_steps, n=1)
M1 = _of_draws(
    id="M1",
    statement="The gradient of a linear associative memory is the sum of (p_W(k|z) - p(k|z)) u_k e_z^T over z and k.",
    quantifier="every",
    margin=-9,
    direction="below",
    unit="log10 of the share of the largest entry",
    controls=controls(
        # Its effect is the size of rounding itself.
        positive=(case("other problems", formula, elsewhere=0.02),),
        negative=(case("predictions left out", without_predictions),),
    ),
    prompts="enumerated",
    measure=measure_gradient,
    explanation=TEXTS.explain("M1"),
)
_M2 = _of_draws(
    id="M2",
    statement="One gradient step from zero stores a function of a token for nearly orthonormal embeddings.",
    quantifier="most",
    margin=0.99,
    unit=_RECALL,
    controls=controls(positive=(_WIDE,), negative=(case("permuted answers", partial(stored, d=1024, permuted=True)),)),
    measure=measure_step,
    explanation=TEXTS.explain("M2", n_inputs=N_INPUTS, width=WIDTH, narrow=NARROW, recalled=RECALLED),
    factors={"d": (32, 64, 256)},
)
M2 = _M2.against(
    _M2.rival(
        "capacity",
        "With half as many dimensions as inputs one step does not store the function.",
        parts=(most("narrow", "below", RECALLED, _RECALL),),
        controls=controls(positive=(case("16 dimensions", partial(stored, d=16)),), negative=(_WIDE,)),
    ),
)
_M3 = _of_draws(
    id="M3",
    statement="Three gradient steps, on W_O and W_K of layer 2 and on W_K of layer 1, recover the three memories.",
    parts=_ALL_THREE,
    controls=controls(
        positive=(_THREE_STEPS,),
        negative=(case("targets of other sequences", partial(planted_steps, permuted=True), n=1),),
    ),
    measure=measure_steps,
    explanation=TEXTS.explain("M3"),
    factors={"embeddings": ("orthonormal",)},
)
M3 = _M3.against(
    _M3.rival(
        "order",
        "The same three steps in the reverse order recover the three memories.",
        parts=_ALL_THREE,
        controls=controls(
            positive=(_THREE_STEPS,), negative=(case("reversed", partial(planted_steps, backwards=True), n=1),)
        ),
        measure=measure_reversed,
    ),
)
for _claim in (M1, M2, M3):
    CLAIMS.add(_claim.id, _claim)
