"""G5: a subject's fact is read from the early MLPs at its last token (Meng et al. 2022).

There the subject is corrupted by noise and a window of ten layers restored; here by another subject, and half of the
layers.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mnemoscope import CLAIMS, Gate, HookedModel, Named, Patch, Site
from mnemoscope.claims import GATE, case, controls, table
from mnemoscope.systems.language_models.claim_parts import (
    LEAST,
    TEXTS,
    UNTRAINED,
    about_models,
    carries,
    leads,
)
from mnemoscope.systems.language_models.constructed import recalling
from mnemoscope.systems.language_models.prompts import facts
from mnemoscope.systems.language_models.reading import ahead

N_FACTS = 48
"""Of 62; tokenizers leave some without a partner."""


def measure(model: HookedModel, *, until: float = 0.5) -> Mapping[str, Any]:
    """Per fact `restored`, `lead`, what else restores (`late`, `at_last`, `attention`), `attention_lead`, and the gate.

    The first layers count as early, up to the share `until` of all.
    """
    pairs = facts(model)
    foil = pairs.foil
    clean = ahead(model, pairs.clean, foil)[0]
    # the lead of the clean answer, also where the corrupted question is asked
    asked = replace(pairs.corrupted, targets=pairs.answer)
    corrupted = ahead(model, asked, foil)[0]
    n_layers = model.cfg.n_layers
    early = max(1, round(until * n_layers))
    halves = {"early": range(early), "late": range(early, n_layers)}

    def restored(kind: Any, half: str, pos: str) -> np.ndarray:
        def patches(rows: slice) -> list[Patch]:
            source = Named(name="the first question", value=pairs.clean.select(rows))
            return [Patch(site=Site(kind=kind, layer=layer, pos=pos), source=source) for layer in halves[half]]

        return (ahead(model, asked, foil, patches)[0] - corrupted) / np.maximum(clean - corrupted, LEAST)

    found = restored("mlp_out", "early", "S")
    late, at_last = restored("mlp_out", "late", "S"), restored("mlp_out", "early", "last")
    attention = restored("attn_out", "early", "S")
    return {
        "restored": found,
        "lead": found - np.maximum(late, at_last),
        "attention_lead": attention - found,
        "late": late,
        "at_last": at_last,
        "attention": attention,
        GATE: np.minimum(clean, -corrupted),
    }


def early(case: int) -> dict[str, Any]:
    """A control: facts are known by the first MLP, at the subject."""
    return recalling("early", case)


def late(case: int) -> dict[str, Any]:
    """A control: facts are known by the last MLP, at the last token."""
    return recalling("late", case)


def _planted(restored: float, lead: float, attention: float) -> dict[str, Any]:
    values = {"restored": restored, "lead": lead, "attention_lead": attention, GATE: 1.0}
    return {"model": {name: np.full(4, value) for name, value in values.items()}}


_EARLY, _LATE = case("early recall", early, n=1), case("late recall", late, n=1)
_ATTENTION = table("attention at the subject", _planted(0.0, 0.0, 0.5))
_G5 = about_models(
    id="G5",
    statement="A subject's fact is read from the early MLPs at its last token: put into a question about another "
    "subject, their outputs bring back the answer, and more of it than late MLPs there or early ones at the end.",
    source="Meng et al. 2022",
    n_replicates=N_FACTS,
    parts=(carries("restored", unit="of the difference"), leads("lead", unit="of the difference")),
    gate=Gate(statement="puts each answer ahead on its own question by half a logit or more", at_least=0.5),
    controls=controls(positive=(_EARLY,), negative=(_LATE, UNTRAINED, _ATTENTION)),
    measure=measure,
    explanation=TEXTS.explain("G5"),
    factors={"until": (0.25, 0.75)},
)
G5 = _G5.against(
    _G5.rival(
        "attention",
        "The attention of these layers at that token brings back more than their MLPs.",
        parts=(leads("attention_lead", unit="of the difference"),),
        controls=controls(positive=(_ATTENTION,), negative=(_EARLY, UNTRAINED)),
    )
)
CLAIMS.add(G5.id, G5)
