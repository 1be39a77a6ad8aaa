"""G2 and G2-lead: the heads with the highest induction scores carry in-context copying (Olsson et al. 2022).

G2 is judged on sequences in which the model names half of the repeated words, G2-lead on those in which it prefers them
to other words of the sequence by a logit: copying may raise a word that something else outdoes.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from mnemoscope import CLAIMS, Claim, Gate, HookedModel
from mnemoscope.claims import GATE, case, controls, table
from mnemoscope.core import Replacement
from mnemoscope.systems.language_models.claim_parts import TEXTS, UNTRAINED, about_models, carries, leads
from mnemoscope.systems.language_models.constructed import copying
from mnemoscope.systems.language_models.prompts import N_CHOOSING, REFERENCE, other_words, repeated
from mnemoscope.systems.language_models.reading import (
    LEAST,
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
SEED_LEAD = 14


def measure(
    model: HookedModel, *, share: float = SHARE, kind: Replacement = "mean", words: str = COMMON
) -> Mapping[str, Any]:
    """Per sequence `effect`, `beyond`, `lost` and `lost_random`, the lead `clean`, and the gate.

    A share of all heads is chosen, and replaced as `kind` says. `words` is a set of words.
    """
    found, right = _effects(model, SEED, share, kind, words)
    return {**found, GATE: right}


def measure_lead(
    model: HookedModel, *, share: float = SHARE, kind: Replacement = "mean", words: str = COMMON
) -> Mapping[str, Any]:
    """The same on other sequences; the gate is the lead."""
    found, _ = _effects(model, SEED_LEAD, share, kind, words)
    return {**found, GATE: found["clean"]}


def _effects(
    model: HookedModel, seed: int, share: float, kind: Replacement, words: str
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The effects on the sequences of a seed, and the share of the repeated words that have the largest logit."""
    asked = repeated(model, n=N_QUESTIONS, seed=seed, words=words, length=LONG)
    reference = repeated(model, n=N_CHOOSING, seed=REFERENCE, words=words, length=LONG)
    foil = other_words(asked, seed=seed)
    clean, right = ahead(model, asked, foil)
    chosen = by_score(model, "induction", share=share, words=words)
    sets = [chosen, *random_heads(model, chosen)]
    each = lost_each(model, asked, foil, clean, [without(heads, reference, kind) for heads in sets])
    return {**beside_random(each), "clean": clean}, right


_COPYING = case("induction circuit", copying, n=2)
_ANY = table(
    "any heads",
    {"model": {"effect": np.zeros(4), "beyond": np.zeros(4), "lost_random": np.full(4, 0.5), GATE: np.ones(4)}},
)
_about_copying = partial(
    about_models,
    source="Olsson et al. 2022",
    n_replicates=N_QUESTIONS,
    parts=(carries("effect", unit="of the lead"), leads("beyond", unit="of the lead")),
    controls=controls(positive=(_COPYING,), negative=(UNTRAINED, _ANY)),
    factors={"share": (0.02,), "kind": ("resample",), "words": (ANY,)},
)


def _with_random(claim: Claim) -> Claim:
    return claim.against(
        claim.rival(
            "any",
            "Random heads of the same layers cost a quarter of the lead.",
            parts=(carries("lost_random", unit="of the lead"),),
            controls=controls(positive=(_ANY,), negative=(_COPYING, UNTRAINED)),
        )
    )


G2 = _with_random(
    _about_copying(
        id="G2",
        statement="The heads with the highest induction scores carry in-context copying: without them more of it is "
        "lost than without as many random heads of the same layers, on average and at most.",
        version=3,
        gate=Gate(statement="names at least half of the repeated words", at_least=0.5),
        measure=measure,
        explanation=TEXTS.explain("G2", n=N_QUESTIONS, long=LONG),
    )
)
G2_LEAD = _with_random(
    _about_copying(
        id="G2-lead",
        statement="Where repeated words lead over other words of the sequence, the heads with the highest induction "
        "scores carry this lead: without them more of it is lost than without as many random heads of the same "
        "layers, on average and at most.",
        version=1,
        gate=Gate(statement="prefers the repeated words to others of the sequence by a logit or more", at_least=LEAST),
        measure=measure_lead,
        explanation=TEXTS.explain("G2-lead", n=N_QUESTIONS, long=LONG),
    )
)
CLAIMS.add(G2.id, G2)
CLAIMS.add(G2_LEAD.id, G2_LEAD)
