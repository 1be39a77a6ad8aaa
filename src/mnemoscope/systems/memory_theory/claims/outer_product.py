"""M4-outer: so does the sum of outer products that is not trained.

Below d = 2^5 embeddings are too far from orthogonal for most associations to be recalled.
"""

import math
from functools import partial

from mnemoscope import CLAIMS
from mnemoscope.claims import Measured, case, controls, most
from mnemoscope.models import FIRST_CONTROL_SEED
from mnemoscope.systems.memory_theory.associations import associations
from mnemoscope.systems.memory_theory.capacity import outer_capacity, outer_products, predicted_capacity, recalled
from mnemoscope.systems.memory_theory.claim_parts import (
    AS_PUBLISHED,
    FEWER,
    LARGEST_SUM,
    LIKE_WIDTH,
    TEXTS,
    about_capacity,
    capacities,
    effects,
    half_powers,
    planted,
    tables,
)

LEAST_SUM = 32
_NEAR = 0.25


def measure(draw: int, *, largest: int = LARGEST_SUM) -> dict[str, float]:
    """Effects of a draw (`claim_parts`), `theory`, log2 of N by what is predicted, and what is stored at each d."""
    found = outer_capacity(half_powers(LEAST_SUM, largest), draws=[draw])
    n, predicted = float(found.capacity[-1, 0]), float(found.predicted[-1])
    return {**effects(found), "theory": math.log2(max(n, 1.0) / predicted)}


def orthonormal(number: int, *, permuted: bool = False) -> dict[str, Measured]:
    """A control: of orthonormal embeddings all d are recalled; or asked for the answers of other inputs, none are."""
    draw, sizes = FIRST_CONTROL_SEED + number, half_powers(LEAST_SUM, LARGEST_SUM)
    stored = {}
    for d in sizes:
        problem = associations(d, d, draw=draw, orthonormal=True)
        asked = problem.permuted(draw) if permuted else problem
        stored[d] = float(d if recalled(asked, outer_products(problem)) == 1 else 0)
    return {"draw": {**effects(capacities(stored)), "theory": math.log2(max(stored[sizes[-1]], 1) / _predicted())}}


def _predicted() -> int:
    return predicted_capacity(LARGEST_SUM)


_SIZES = half_powers(LEAST_SUM, LARGEST_SUM)
_PLANTED = tables(_SIZES, theory=math.log2(2.0))
_AS_PREDICTED = planted("as many as predicted", predicted_capacity, _SIZES, theory=0.0)
_ORTHONORMAL = case("orthonormal embeddings", orthonormal, n=2)
_PERMUTED = case("permuted answers", partial(orthonormal, permuted=True), n=2)
_M4_OUTER = about_capacity(
    id="M4-outer",
    statement="With random embeddings the sum of outer products, without training, stores about as many associations "
    "as it has parameters: N log N grows like d².",
    parts=AS_PUBLISHED,
    controls=controls(
        positive=(_PLANTED["law"],),
        negative=(_PLANTED["sixteenth"], _PLANTED["parameters"], _PLANTED["width"], _ORTHONORMAL, _PERMUTED),
    ),
    measure=measure,
    explanation=TEXTS.explain("M4-outer"),
    factors={"largest": (256,)},
)
M4_OUTER = _M4_OUTER.against(
    _M4_OUTER.rival(
        "interference",
        "What the sum stores is what normal interference between random embeddings predicts.",
        parts=(most("theory", "within", _NEAR, "factors of two"),),
        controls=controls(positive=(_AS_PREDICTED,), negative=(_PLANTED["law"], _ORTHONORMAL, _PERMUTED)),
    ),
    _M4_OUTER.rival(
        "width",
        "Capacity grows like the width of the matrix.",
        parts=LIKE_WIDTH,
        controls=controls(
            positive=(_PLANTED["width"], _ORTHONORMAL), negative=(_PLANTED["law"], _PLANTED["parameters"])
        ),
    ),
    _M4_OUTER.rival(
        "fewer",
        "At the largest size fewer than a quarter as many associations are stored as there are parameters.",
        parts=FEWER,
        controls=controls(positive=(_PLANTED["sixteenth"],), negative=(_PLANTED["parameters"],)),
    ),
)
CLAIMS.add(M4_OUTER.id, M4_OUTER)
