"""K2: asked for k hops alone, gradient descent fails within a budget with which a mixture succeeds.

Twenty times the need (`recipe.n_steps` of 16,000) is a factor: that only the budget was short would turn the verdict
there. Under that factor the mixture is trained longer too.
"""

from collections.abc import Mapping
from functools import partial

from mnemoscope import CLAIMS, Criterion, Gate
from mnemoscope.claims import GATE, Case, Measured, case, controls, most, table
from mnemoscope.models import combined, set_by_hand, untrained
from mnemoscope.systems.k_hop.claim_parts import (
    ALONE,
    ERROR,
    LEARNED,
    MIXTURE,
    TASK,
    TEXTS,
    errors,
    k_hop_claim,
    units,
)
from mnemoscope.systems.k_hop.claims.depth import composer

UNITS = units(ALONE, MIXTURE)
NOTHING = 0.15
MIXED = Gate(
    statement=f"learns every number of hops when trained on all, with an error of at most {LEARNED:g}", at_most=LEARNED
)


def compared(measured: Mapping[str, Measured]) -> Measured:
    """The error after 4 hops where these are asked for alone (`alone`), and the largest of the mixture (`GATE`)."""
    return {"alone": measured[ALONE]["hops_4"], GATE: max(float(each) for each in measured[MIXTURE].values())}


def _built(name: str, alone: int) -> Case:
    """A control: how many hops the model composes that is asked for 4 alone."""
    makes = {ALONE: partial(composer, alone), MIXTURE: partial(composer, 4)}
    return case(name, combined(*(set_by_hand(unit, make, TASK) for unit, make in makes.items())), n=1)


_FAILS, _KNOWS = _built("composes 2 hops", 2), _built("composes 4 hops", 4)
_MARGIN = table("at the margin", {ALONE: {"hops_4": NOTHING}, MIXTURE: {"hops_4": 0.0}})
_K2 = k_hop_claim(
    id="K2",
    statement="Asked for 4 hops alone, models learn nothing with five times the budget of a mixture that succeeds.",
    units=UNITS,
    gate=MIXED,
    measure=errors,
    compare=compared,
    explanation=TEXTS.explain("K2", nothing=NOTHING),
    prompts="own",
    parts=(Criterion(name="alone", quantifier="every", margin=NOTHING, direction="above", unit=ERROR),),
    factors={"recipe.n_steps": (16_000,)},
    controls=controls(positive=(_FAILS,), negative=(_KNOWS, _MARGIN)),
)
K2 = _K2.against(
    _K2.rival(
        "learned",
        "Most models learn it all the same.",
        parts=(most("alone", "below", LEARNED, ERROR),),
        controls=controls(positive=(_KNOWS,), negative=(_FAILS, case("untrained", untrained(UNITS)))),
    ),
)
CLAIMS.add(K2.id, K2)
