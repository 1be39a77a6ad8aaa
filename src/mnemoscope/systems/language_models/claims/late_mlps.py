"""G3: removing late MLPs turns the answer from the global to the in-context token.

In a small model trained on such data the last MLP says the global token, and without it the in-context one is left
(Chen, Bruna & Bietti 2024, "How truncating weights improves reasoning in language models"; the claims of noisy recall).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mnemoscope import CLAIMS, Gate, HookedModel, Mean, Named, Site
from mnemoscope.claims import GATE, case, controls
from mnemoscope.systems.language_models.claim_parts import LEAST, TEXTS, UNTRAINED, about_models, by_logits
from mnemoscope.systems.language_models.constructed import conflicting
from mnemoscope.systems.language_models.prompts import conflicts, successors
from mnemoscope.systems.language_models.reading import ahead

N_TEXTS = 40
"""Of 48; tokenizers may leave some out."""
THIRD = 1 / 3


def measure(model: HookedModel, *, share: float = THIRD) -> Mapping[str, Any]:
    """Per text `effect`, `more`, `early_more` (its negative), `turned`, the lead `clean`, and the gate.

    A share of the layers counts as late, and as many as early.
    """
    here, plain = conflicts(model)
    clean = ahead(model, here, successors(here, plain))[0]
    n_layers = model.cfg.n_layers
    n = max(1, round(share * n_layers))

    def without(layers: Sequence[int]) -> np.ndarray:
        source = Named(name="all texts", value=here)
        sites = [Site(kind="mlp_out", layer=layer, pos="last") for layer in layers]
        removed = [Mean(site=site, source=source, over="last") for site in sites]
        return ahead(model, here, successors(here, plain), lambda rows: removed)[0]

    late, early = without(range(n_layers - n, n_layers)), without(range(n))
    more = late - early
    return {
        "effect": late - clean,
        "more": more,
        "early_more": -more,
        "turned": ((clean < 0) & (late > 0)).astype(float),
        "clean": clean,
        GATE: ahead(model, plain, successors(plain, here))[0],
    }


def late(case: int) -> dict[str, Any]:
    """A control: the last MLP says what mostly follows."""
    return conflicting("late", case)


def early(case: int) -> dict[str, Any]:
    """A control: the first MLP does."""
    return conflicting("early", case)


_LATE, _EARLY = case("late bigrams", late, n=1), case("early bigrams", early, n=1)
_G3 = about_models(
    id="G3",
    statement="Removing late MLPs turns the answer from the global to the in-context token, and more than removing "
    "early ones does.",
    source="Chen, Bruna & Bietti 2024",
    n_replicates=N_TEXTS,
    parts=(by_logits("effect"), by_logits("more")),
    gate=Gate(statement="puts the global successor ahead by a logit or more without the text", at_least=LEAST),
    controls=controls(positive=(_LATE,), negative=(_EARLY, UNTRAINED)),
    measure=measure,
    explanation=TEXTS.explain("G3"),
    factors={"share": (0.2, 0.5)},
)
G3 = _G3.against(
    _G3.rival(
        "early",
        "Removing early MLPs turns the answer by a logit more than removing late ones.",
        parts=(by_logits("early_more"),),
        controls=controls(positive=(_EARLY,), negative=(_LATE, UNTRAINED)),
    )
)
CLAIMS.add(G3.id, G3)
