"""K3: a mixture of hop numbers succeeds, and so does a curriculum from easy to hard."""

from collections.abc import Mapping
from functools import partial

from mnemoscope import CLAIMS
from mnemoscope.claims import Case, Measured, case, controls, most
from mnemoscope.models import combined, set_by_hand, untrained
from mnemoscope.systems.k_hop.claim_parts import (
    CURRICULUM,
    ERROR,
    LEARNED,
    MIXTURE,
    STAGES,
    TASK,
    TEXTS,
    errors,
    k_hop_claim,
    units,
)
from mnemoscope.systems.k_hop.claims.depth import composer

UNITS = units(MIXTURE, CURRICULUM, STAGES)


def compared(measured: Mapping[str, Measured]) -> Measured:
    """The largest error of `mixture` and `curriculum`, and the error after 4 hops of `stages`."""
    worst = {name: max(float(each) for each in measured[name].values()) for name in (MIXTURE, CURRICULUM)}
    return {"mixture": worst[MIXTURE], "curriculum": worst[CURRICULUM], "stages": measured[STAGES]["hops_4"]}


def _built(name: str, *reached: int) -> Case:
    """A control: how many hops the models compose that were taught by mixture, by curriculum and in stages."""
    made = zip(UNITS, reached, strict=True)
    return case(name, combined(*(set_by_hand(unit, partial(composer, hops), TASK) for unit, hops in made)), n=1)


_BOTH, _ALL, _NONE = _built("mixture and curriculum", 4, 4, 2), _built("all", 4, 4, 4), _built("none", 2, 2, 2)
_ONE = _built("mixture alone", 4, 2, 2)
_UNTRAINED = case("untrained", untrained(UNITS))
_K3 = k_hop_claim(
    id="K3",
    statement="A mixture of hop numbers succeeds, and so does a curriculum from easy to hard.",
    units=UNITS,
    measure=errors,
    compare=compared,
    explanation=TEXTS.explain("K3"),
    prompts="own",
    parts=(most("mixture", "below", LEARNED, ERROR), most("curriculum", "below", LEARNED, ERROR)),
    controls=controls(positive=(_BOTH, _ALL), negative=(_ONE, _NONE, _UNTRAINED)),
)
K3 = _K3.against(
    _K3.rival(
        "stages",
        "One number of hops at a time, each stage giving up the last, succeeds too.",
        parts=(most("stages", "below", LEARNED, ERROR),),
        controls=controls(positive=(_ALL,), negative=(_BOTH, _UNTRAINED)),
    ),
)
CLAIMS.add(K3.id, K3)
