"""G4: indirect-object identification goes through heads that attend to the right name and copy it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mnemoscope import CLAIMS, Gate, HookedModel
from mnemoscope.claims import GATE, case, controls, table
from mnemoscope.core import Replacement
from mnemoscope.systems.language_models.claim_parts import (
    LEAST,
    TEXTS,
    UNTRAINED,
    about_models,
    carries,
    leads,
)
from mnemoscope.systems.language_models.constructed import naming
from mnemoscope.systems.language_models.name_circuit import attention_from_last, name_copying
from mnemoscope.systems.language_models.prompts import ASKED, CHOOSING, N_CHOOSING, N_QUESTIONS, REFERENCE, givers
from mnemoscope.systems.language_models.reading import SHARE, ahead, highest, lost, n_chosen, random_heads, without


def measure(model: HookedModel, *, share: float = SHARE, kind: Replacement = "mean") -> Mapping[str, Any]:
    """Per story `effect`, `attention`, `lost`, `lost_random`, and the gate: the lead.

    A share of all heads is chosen, and replaced as `kind` says.
    """
    scores = name_copying(model, givers(model, n=N_CHOOSING, seed=CHOOSING).clean)
    chosen = highest(scores, n_chosen(model, share))
    pairs = givers(model, n=N_QUESTIONS, seed=ASKED)
    reference = givers(model, n=N_CHOOSING, seed=REFERENCE, apart=True).clean
    clean = ahead(model, pairs.clean, pairs.foil)[0]
    each = []
    for heads in (chosen, *random_heads(model, chosen)):
        removed = without(heads, reference, kind, pos="last", within="story")
        left = ahead(model, pairs.clean, pairs.foil, lambda rows, removed=removed: removed)[0]
        each.append(lost(clean, left, LEAST))
    due, first, second = attention_from_last(model, pairs.clean, chosen, ("IO", "S1", "S"))
    of_random = np.mean(each[1:], 0)
    return {
        "effect": each[0] - of_random,
        "attention": due - first - second,
        "lost": each[0],
        "lost_random": of_random,
        GATE: clean,
    }


_NAMING = case("name copying", naming, n=1)
_ANY = table(
    "any heads",
    {"model": {"effect": np.zeros(4), "attention": np.zeros(4), "lost_random": np.full(4, 0.5), GATE: np.ones(4)}},
)
_G4 = about_models(
    id="G4",
    statement="Indirect-object identification goes through heads that attend to the name that is due and copy it.",
    source="Wang et al. 2022",
    parts=(carries("effect", unit="of the lead"), leads("attention", unit="of the attention")),
    gate=Gate(statement="puts the IO name ahead by half a logit or more", at_least=0.5),
    controls=controls(positive=(_NAMING,), negative=(UNTRAINED, _ANY)),
    measure=measure,
    explanation=TEXTS.explain("G4"),
    factors={"share": (0.02,), "kind": ("resample",)},
)
G4 = _G4.against(
    _G4.rival(
        "any",
        "Random heads of the same layers cost a quarter of the lead.",
        parts=(carries("lost_random", unit="of the lead"),),
        controls=controls(positive=(_ANY,), negative=(_NAMING, UNTRAINED)),
    )
)
CLAIMS.add(G4.id, G4)
