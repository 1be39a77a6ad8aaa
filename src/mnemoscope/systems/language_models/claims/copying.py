"""G2: the heads with the highest induction scores carry in-context copying (Olsson et al. 2022)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mnemoscope import CLAIMS, Gate, HookedModel
from mnemoscope.claims import GATE, case, controls, table
from mnemoscope.core import Replacement
from mnemoscope.systems.language_models.claim_parts import TEXTS, UNTRAINED, about_models, carries, leads
from mnemoscope.systems.language_models.constructed import copying
from mnemoscope.systems.language_models.prompts import N_CHOOSING, REFERENCE, other_words, repeated
from mnemoscope.systems.language_models.reading import (
    SHARE,
    ahead,
    beside_random,
    by_score,
    lost_each,
    random_heads,
    without,
)
from mnemoscope.systems.language_models.words import ANY, COMMON

N_QUESTIONS = 64
LONG = 20
"""Words: of shorter sequences the packaged model copies too few."""
SEED = 13


def measure(
    model: HookedModel, *, share: float = SHARE, kind: Replacement = "mean", words: str = COMMON
) -> Mapping[str, Any]:
    """Per sequence `effect`, `beyond`, `lost` and `lost_random`, the lead `clean`, and the gate.

    A share of all heads is chosen, and replaced as `kind` says. `words` is a set of words.
    """
    asked = repeated(model, n=N_QUESTIONS, seed=SEED, words=words, length=LONG)
    reference = repeated(model, n=N_CHOOSING, seed=REFERENCE, words=words, length=LONG)
    foil = other_words(asked, seed=SEED)
    clean, right = ahead(model, asked, foil)
    chosen = by_score(model, "induction", share=share, words=words)
    sets = [chosen, *random_heads(model, chosen)]
    each = lost_each(model, asked, foil, clean, [without(heads, reference, kind) for heads in sets])
    return {**beside_random(each), "clean": clean, GATE: right}


_COPYING = case("induction circuit", copying, n=2)
_ANY = table(
    "any heads",
    {"model": {"effect": np.zeros(4), "beyond": np.zeros(4), "lost_random": np.full(4, 0.5), GATE: np.ones(4)}},
)
_G2 = about_models(
    id="G2",
    statement="The heads with the highest induction scores carry in-context copying: without them more of it is lost "
    "than without as many random heads of the same layers, on average and at most.",
    source="Olsson et al. 2022",
    n_replicates=N_QUESTIONS,
    version=3,
    parts=(carries("effect", unit="of the lead"), leads("beyond", unit="of the lead")),
    gate=Gate(statement="names at least half of the repeated words", at_least=0.5),
    controls=controls(positive=(_COPYING,), negative=(UNTRAINED, _ANY)),
    measure=measure,
    explanation=TEXTS.explain("G2", n=N_QUESTIONS, long=LONG),
    factors={"share": (0.02,), "kind": ("resample",), "words": (ANY,)},
)
G2 = _G2.against(
    _G2.rival(
        "any",
        "Random heads of the same layers cost a quarter of the lead.",
        parts=(carries("lost_random", unit="of the lead"),),
        controls=controls(positive=(_ANY,), negative=(_COPYING, UNTRAINED)),
    )
)
CLAIMS.add(G2.id, G2)
