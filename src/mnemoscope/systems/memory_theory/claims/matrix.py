"""M4: a trained matrix stores about as many random associations as it has parameters.

The rate of Adam is not published; .1 and all sizes were chosen on draws from 1000 on. `largest` varies the sizes.
"""

from dataclasses import replace

import xarray as xr

from mnemoscope import CLAIMS
from mnemoscope.claims import Measured, case, controls
from mnemoscope.models import FIRST_CONTROL_SEED
from mnemoscope.systems.memory_theory.associations import associations
from mnemoscope.systems.memory_theory.capacity import MATRIX, matrix_capacity, stored
from mnemoscope.systems.memory_theory.claim_parts import (
    AS_PUBLISHED,
    FEWER,
    LARGEST,
    LEAST,
    LIKE_PARAMETERS,
    LIKE_WIDTH,
    TEXTS,
    about_capacity,
    capacities,
    effects,
    half_powers,
    tables,
)
from mnemoscope.systems.memory_theory.training import zero_matrix

UPPER = 16
"""From this dimension on small sizes weigh less: 99 % of what is stored is soon no longer all of it."""


def measure(draw: int, *, largest: int = LARGEST, learning_rate: float = MATRIX.learning_rate) -> dict[str, float]:
    """Effects of a draw (`claim_parts`), what is stored at each d, and `law_of_upper`, `law` from d = 16 on.

    `largest` is the largest dimension; 256 is published.
    """
    training = replace(MATRIX, learning_rate=learning_rate)
    found = matrix_capacity(half_powers(LEAST, largest), draws=[draw], training=training)
    upper = found.sel(d=slice(UPPER, None))
    beside = {"law_of_upper": effects(upper)["law"]} if upper.sizes["d"] > 1 else {}
    return {**effects(found), **beside}


def orthonormal(number: int) -> dict[str, Measured]:
    """A control: with orthonormal embeddings, of which there are d, all d are stored."""
    return {"draw": effects(_orthonormal(FIRST_CONTROL_SEED + number))}


def _orthonormal(draw: int) -> xr.Dataset:
    sizes = half_powers(LEAST, LARGEST)
    all_stored = [stored([associations(d, d, draw=draw, orthonormal=True)], [zero_matrix(d)], MATRIX)[0] for d in sizes]
    return capacities({d: float(d if each else 0) for d, each in zip(sizes, all_stored, strict=True)})


_PLANTED = tables(half_powers(LEAST, LARGEST))
_ORTHONORMAL = case("orthonormal embeddings", orthonormal, n=2)
_M4 = about_capacity(
    id="M4",
    statement="With random embeddings a trained matrix stores about as many associations as it has parameters: "
    "N log N grows like d².",
    parts=AS_PUBLISHED,
    controls=controls(
        positive=(_PLANTED["law"],),
        negative=(_PLANTED["sixteenth"], _PLANTED["parameters"], _PLANTED["width"], _ORTHONORMAL),
    ),
    measure=measure,
    explanation=TEXTS.explain("M4"),
    factors={"largest": (32,)},
)
M4 = _M4.against(
    _M4.rival(
        "plain",
        "Capacity grows like the number of parameters, without a logarithm.",
        parts=LIKE_PARAMETERS,
        controls=controls(positive=(_PLANTED["parameters"],), negative=(_PLANTED["law"], _PLANTED["width"])),
    ),
    _M4.rival(
        "width",
        "Capacity grows like the width of the matrix.",
        parts=LIKE_WIDTH,
        controls=controls(
            positive=(_PLANTED["width"], _ORTHONORMAL), negative=(_PLANTED["law"], _PLANTED["parameters"])
        ),
    ),
    _M4.rival(
        "fewer",
        "At the largest size fewer than a quarter as many associations are stored as there are parameters.",
        parts=FEWER,
        controls=controls(positive=(_PLANTED["sixteenth"],), negative=(_PLANTED["parameters"],)),
    ),
)
CLAIMS.add(M4.id, M4)
