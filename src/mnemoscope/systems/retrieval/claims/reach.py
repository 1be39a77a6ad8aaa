"""R1: how many layers a chain needs, counted; the number of a draw is D - 1."""

import math
from functools import partial

from mnemoscope import CLAIMS, Claim, Criterion
from mnemoscope.claims import controls, most, table
from mnemoscope.systems.retrieval.analyses import Order, bound, least_layers
from mnemoscope.systems.retrieval.claim_parts import SOURCE, TEXTS

_LAYERS = "layers"


def measure(draw: int, *, mask: Order = "none") -> dict[str, float]:
    """Effects for D = `draw` + 1, in layers, counted with this mask.

    They are by how many the count exceeds the bound (`above_bound`), the bound rounded up (`above_ceiling`), and by how
    many a causal mask exceeds none (`masked_more`).
    """
    n_steps = draw + 1
    layers = least_layers(n_steps, mask=mask)
    return {
        "above_bound": layers - bound(n_steps),
        "above_ceiling": layers - math.ceil(bound(n_steps)),
        "masked_more": least_layers(n_steps, mask="forward") - layers,
    }


def reached_in(n_steps: int, layers: int) -> dict[str, float]:
    """The effects if the answer were known after that many layers, with a mask and without."""
    least = bound(n_steps)
    return {"above_bound": layers - least, "above_ceiling": layers - math.ceil(least), "masked_more": 0.0}


_LATE = table("one layer more than the bound", {"draw": reached_in(8, 4)})
_TIGHT = table("as many as the bound", {"draw": reached_in(8, 3)})
_EARLY = table("one layer fewer than the bound", {"draw": reached_in(8, 2)})
_MASKED = table("two layers more with a mask", {"draw": {**reached_in(8, 3), "masked_more": 2.0}})
_of_chains = partial(Claim, system="retrieval", source=SOURCE, replicate="draw", prompts="enumerated", develops=False)
_R1 = _of_chains(
    id="R1",
    statement="Following a chain of D steps takes at least log_3(2D) layers of attention.",
    parts=(Criterion(name="above_bound", quantifier="every", margin=-0.001, direction="above", unit=_LAYERS),),
    controls=controls(positive=(_LATE, _TIGHT), negative=(_EARLY,)),
    measure=measure,
    explanation=TEXTS.explain("R1"),
    factors={"mask": ("forward", "backward")},
)
R1 = _R1.against(
    _R1.rival(
        "tight",
        "The bound, rounded up, is enough.",
        parts=(most("above_ceiling", "below", 0.5, _LAYERS),),
        controls=controls(positive=(_TIGHT,), negative=(_LATE,)),
    ),
    _R1.rival(
        "masked",
        "With a causal mask the bound counts too few: it takes a layer more than without.",
        parts=(most("masked_more", "above", 0.5, _LAYERS),),
        controls=controls(positive=(_MASKED,), negative=(_TIGHT,)),
    ),
)
CLAIMS.add(R1.id, R1)
