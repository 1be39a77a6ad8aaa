"""M4-outer: so does the sum of outer products that is not trained.

Refuted if, in most draws, the slope of log(N log N) against log d² differs from 1 by more than .1, or if N ln N at the
largest size is less than a quarter or more than four times d². The matrix is the sum of e_z^T u_z; N is the largest
number of which it recalls 99 % by argmax, d from 2^5 to 2^9 by half powers: below, embeddings are too far from
orthogonal for most. Rival M4-outer-interference: at the largest size N lies within 2^±.25, about a fifth, of what
normal interference between random vectors predicts (`analyses.outer_product`; the effect is log2 of the ratio), which
reaches the law only where d is far larger. Rivals M4-outer-width and M4-outer-fewer as for M4.

It shows what the written-down sum stores, with an output for each input. It does not show what training would add.
"""

import math
from functools import partial

from mnemoscope import CLAIMS
from mnemoscope.judging import Measured, case, controls, most
from mnemoscope.models import FIRST_PLANTED
from mnemoscope.systems.memory_theory.analyses.associations import associations
from mnemoscope.systems.memory_theory.analyses.outer_product import (
    outer_capacity,
    outer_products,
    predicted_capacity,
    recalled,
)
from mnemoscope.systems.memory_theory.claim_parts import (
    AS_PUBLISHED,
    FEWER,
    LARGEST_SUM,
    LIKE_WIDTH,
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
    """Effects of a draw (`claim_parts`), `theory`, log2 of N by what is predicted, and what is stored at each d.

    Args:
        draw: Number of the draw.
        largest: Largest dimension.

    Raises:
        InputError: There are fewer than two dimensions.
    """
    found = outer_capacity(half_powers(LEAST_SUM, largest), draws=[draw])
    n, predicted = float(found.capacity[-1, 0]), float(found.predicted[-1])
    return {**effects(found), "theory": math.log2(max(n, 1.0) / predicted)}


def orthonormal(number: int, *, permuted: bool = False) -> dict[str, Measured]:
    """A control: of orthonormal embeddings all d are recalled; or asked for the answers of other inputs, none are."""
    draw, sizes = FIRST_PLANTED + number, half_powers(LEAST_SUM, LARGEST_SUM)
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
