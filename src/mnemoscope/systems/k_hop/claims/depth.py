"""K1: log2 k + 1 layers are enough to compose k functions.

By construction they are (`constructed.doubling`, exact, which is the positive control).
"""

from collections.abc import Mapping
from functools import partial

from mnemoscope import CLAIMS, HookedModel
from mnemoscope.claims import Case, Measured, case, controls, most
from mnemoscope.models import combined, set_by_hand, untrained
from mnemoscope.systems.k_hop.claim_parts import (
    ERROR,
    LEARNED,
    MIXTURE,
    SHALLOW,
    TASK,
    TEXTS,
    errors,
    k_hop_claim,
    units,
)
from mnemoscope.systems.k_hop.constructed import doubling

UNITS = units(MIXTURE, SHALLOW)


def by_depth(measured: Mapping[str, Measured]) -> Measured:
    """The error after 4 hops with 3 layers (`enough`) and with 2 (`fewer`)."""
    return {"enough": measured[MIXTURE]["hops_4"], "fewer": measured[SHALLOW]["hops_4"]}


def composer(reached: int) -> HookedModel:
    """The model set by hand, up to so many hops."""
    return doubling(TASK, reached=reached)


def _built(name: str, deep: int, shallow: int) -> Case:
    """A control: how many hops the deeper and the shallower model compose."""
    made = zip(UNITS, (deep, shallow), strict=True)
    return case(name, combined(*(set_by_hand(unit, partial(composer, hops), TASK) for unit, hops in made)), n=1)


_NEEDED, _ALIKE = _built("the deeper one alone", 4, 2), _built("both", 4, 4)
_UNTRAINED = case("untrained", untrained(UNITS))
_K1 = k_hop_claim(
    id="K1",
    statement="Training finds that log2 k + 1 layers are enough for k hops.",
    units=UNITS,
    measure=errors,
    compare=by_depth,
    explanation=TEXTS.explain("K1"),
    prompts="own",
    parts=(most("enough", "below", LEARNED, ERROR),),
    controls=controls(positive=(_NEEDED, _ALIKE), negative=(_built("neither", 2, 2), _UNTRAINED)),
)
K1 = _K1.against(
    _K1.rival(
        "fewer",
        "One layer fewer is enough.",
        parts=(most("fewer", "below", LEARNED, ERROR),),
        controls=controls(positive=(_ALIKE,), negative=(_NEEDED, _UNTRAINED)),
    ),
)
CLAIMS.add(K1.id, K1)
