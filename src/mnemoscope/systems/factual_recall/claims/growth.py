"""F1 and F1-attention: how many facts are learned grows like the number of parameters.

`largest` leaves out the largest width, and `learning_rate` varies the rate, of which the paper takes the best.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import xarray as xr

from mnemoscope import CLAIMS, Claim
from mnemoscope.claims import Case, Measured, controls, most, table
from mnemoscope.systems.factual_recall.analyses import (
    WIDTHS,
    WITHOUT_MLP,
    capacity,
    exponents,
    scaling_sweep,
)
from mnemoscope.systems.factual_recall.claim_parts import TEXTS, facts_claim

NEAR_ONE = 0.25


def measure(draw: int, *, mlp: bool = True, largest: float = math.inf, learning_rate: float = 1e-2) -> dict[str, float]:
    """The exponent less one and less one half (`law`, `width`), parameters per fact at the largest width
    (`parameters_per_fact`), and the facts at each width.

    Widths above `largest` are left out.
    """
    widths = [width for width in (WIDTHS if mlp else WITHOUT_MLP) if width <= largest]
    return effects(capacity(scaling_sweep([draw], mlp=mlp, widths=widths, learning_rate=learning_rate)))


def effects(found: xr.Dataset) -> dict[str, float]:
    """The effects of one draw; a draw that does not learn the least at some width has an exponent of zero."""
    exponent = float(exponents(found).fillna(0.0)[0])
    facts, parameters = found.facts.isel(draw=0), found.parameters
    return {
        "law": exponent - 1,
        "width": exponent - 0.5,
        "parameters_per_fact": float(parameters[-1] / max(float(facts[-1]), 1.0)),
        **{f"facts_{width}": float(n) for width, n in zip(found.width.values, facts.values, strict=True)},
    }


def _planted(name: str, law: Callable[[float], float]) -> Case:
    """A control: facts as a function of the parameters, 12 d²."""
    parameters = [12 * width**2 for width in WIDTHS]
    data = {"facts": (("width", "draw"), [[law(p)] for p in parameters]), "parameters": ("width", parameters)}
    measured: Measured = effects(xr.Dataset(data, coords={"width": list(WIDTHS), "draw": [0]}))
    return table(name, {"draw": measured})


_LIKE_PARAMETERS = _planted("a fact per 20 parameters", lambda p: p / 20)
_WITH_LOGARITHM = _planted("facts times their logarithm like parameters", lambda p: p / np.log(p) / 3)
_LIKE_WIDTH = _planted("facts like the width", lambda p: 5 * p**0.5)
_LIKE_SQUARE = _planted("facts like the square of the parameters", lambda p: p**2 / 1e5)
_NONE = _planted("none learned", lambda p: 0.0)


def about(id: str, statement: str, *, mlp: bool) -> Claim:
    """F1 about models with or without an MLP."""
    widths = WIDTHS if mlp else WITHOUT_MLP
    claim = facts_claim(
        id=id,
        statement=statement,
        first_seed=0,
        replicate="draw",
        develops=False,
        measure=partial(measure, mlp=mlp),
        explanation=TEXTS.explain(id, near_one=NEAR_ONE, smallest=widths[0], largest=widths[-1]),
        parts=(most("law", "within", NEAR_ONE, "exponent less one"),),
        factors={"largest": (23 if mlp else 32,), "learning_rate": (3e-3,)},
        controls=controls(positive=(_LIKE_PARAMETERS, _WITH_LOGARITHM), negative=(_LIKE_WIDTH, _LIKE_SQUARE, _NONE)),
    )
    return claim.against(
        claim.rival(
            "width",
            "They grow like the width.",
            parts=(most("width", "within", NEAR_ONE, "exponent less one half"),),
            controls=controls(positive=(_LIKE_WIDTH,), negative=(_LIKE_PARAMETERS, _LIKE_SQUARE)),
        )
    )


F1 = about("F1", "With an MLP the number of facts that are learned grows like the number of parameters.", mlp=True)
F1_ATTENTION = about("F1-attention", "Without an MLP it does so too.", mlp=False)
for _claim in (F1, F1_ATTENTION):
    CLAIMS.add(_claim.id, _claim)
