"""G6: indirect-object identification is shared out as published for GPT-2 small.

Name movers write the IO name, negative name movers write against it. S-inhibition heads, in earlier layers, attend to
S2 and direct the queries of the name movers away from S.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mnemoscope import CLAIMS, Gate, HookedModel, PromptPairs
from mnemoscope.claims import GATE, case, controls, table
from mnemoscope.systems.language_models.claim_parts import (
    LEAST,
    LEAST_ATTENTION,
    TEXTS,
    UNTRAINED,
    about_models,
    carries,
    leads,
)
from mnemoscope.systems.language_models.constructed import sharing
from mnemoscope.systems.language_models.name_circuit import (
    Patches,
    Roles,
    attention_from_last,
    attention_to_due,
    find_roles,
    tellings,
    told_otherwise,
    written_otherwise,
)
from mnemoscope.systems.language_models.prompts import ASKED, CHOOSING, N_CHOOSING, N_QUESTIONS
from mnemoscope.systems.language_models.reading import SHARE, ahead, lost, random_heads


def measure(model: HookedModel, *, share: float = SHARE) -> Mapping[str, Any]:
    """Per story `written`, `attention`, `against`, `told`, `again`, `written_random`, and the gate: the lead.

    A share of all heads has each role.
    """
    roles = find_roles(model, tellings(model, n=N_CHOOSING, seed=CHOOSING), share=share)
    pairs = tellings(model, n=N_QUESTIONS, seed=ASKED)

    def lead(patches: Patches) -> np.ndarray:
        return ahead(model, pairs.clean, pairs.foil, patches)[0]

    clean = ahead(model, pairs.clean, pairs.foil)[0]
    sets = [roles.movers, *random_heads(model, roles.movers, without=roles.negative)]
    written = [lost(clean, lead(written_otherwise(pairs, heads)), LEAST) for heads in sets]
    attention = attention_to_due(model, pairs.clean, roles.movers)
    told, again = _inhibition(model, pairs, roles, attention)
    of_random = np.mean(written[1:], 0)
    return {
        "written": written[0] - of_random,
        "attention": attention,
        "against": -lost(clean, lead(written_otherwise(pairs, roles.negative)), LEAST),
        "told": told,
        "again": again,
        "written_random": of_random,
        GATE: clean,
    }


def _inhibition(
    model: HookedModel, pairs: PromptPairs, roles: Roles, attention: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The worth of the inhibitors to the movers' attention, beyond that of random heads; and what they attend to."""
    if not roles.inhibitors:
        return np.zeros_like(attention), np.zeros_like(attention)
    told = []
    for heads in (roles.inhibitors, *random_heads(model, roles.inhibitors, without=roles.movers)):
        left = attention_to_due(model, pairs.clean, roles.movers, told_otherwise(pairs, heads, roles.movers))
        told.append(lost(attention, left, LEAST_ATTENTION))
    again, due, first = attention_from_last(model, pairs.clean, roles.inhibitors, ("S", "IO", "S1"))
    return told[0] - np.mean(told[1:], 0), again - due - first


_SHARED = case("shared out by hand", sharing, n=1)
_NONE = dict.fromkeys(("written", "attention", "against", "told", "again"), 0.0)
_EVENLY = {**_NONE, "written_random": 0.5, GATE: 1.0}
_ANY = table("any heads", {"model": {name: np.full(4, value) for name, value in _EVENLY.items()}})
_G6 = about_models(
    id="G6",
    statement="Indirect-object identification is shared out: heads that attend to the name that is due write it, other "
    "heads write against it, and earlier heads that attend to the name said again direct the first through their "
    "queries.",
    source="Wang et al. 2022",
    parts=(
        carries("written", unit="of the lead"),
        leads("attention", unit="of the attention"),
        leads("against", unit="of the lead"),
        carries("told", unit="of the movers' attention"),
        leads("again", unit="of the attention"),
    ),
    gate=Gate(statement="puts the IO name ahead by half a logit or more", at_least=0.5),
    controls=controls(positive=(_SHARED,), negative=(UNTRAINED, _ANY)),
    measure=measure,
    explanation=TEXTS.explain("G6"),
    factors={"share": (0.02,)},
)
G6 = _G6.against(
    _G6.rival(
        "any",
        "Random heads of the same layers write a quarter of the lead.",
        parts=(carries("written_random", unit="of the lead"),),
        controls=controls(positive=(_ANY,), negative=(_SHARED, UNTRAINED)),
    )
)
CLAIMS.add(G6.id, G6)
