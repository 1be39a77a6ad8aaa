"""G3: removing late MLPs turns the answer from the global to the in-context token.

After a preposition late MLPs say the word that mostly follows one, and without them what the text says is left (Chen,
Bruna & Bietti 2024, "How truncating weights improves reasoning in language models"; the claims of noisy recall). There
weights are truncated; here whole outputs are replaced.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from mnemoscope import CLAIMS, Gate, HookedModel, Mean, Named, Site, Zero
from mnemoscope.claims import GATE, case, controls
from mnemoscope.systems.language_models.claim_parts import TEXTS, UNTRAINED, about_models, by_logits, turns
from mnemoscope.systems.language_models.constructed import conflicting
from mnemoscope.systems.language_models.prompts import conflicts
from mnemoscope.systems.language_models.reading import ahead
from mnemoscope.systems.language_models.words import PEOPLE, PLACES

THIRD = 1 / 3


def measure(
    model: HookedModel, *, share: float = THIRD, kind: Literal["mean", "zero"] = "mean", text: str = PLACES
) -> Mapping[str, Any]:
    """Per text `left`, `more`, `early_more`, the leads `clean` and `raised`, and the gate.

    A share of the layers counts as late, as many as early, and as many before the late ones are compared too. Their
    MLPs are replaced as `kind` says. `text` is a set of texts.
    """
    of = conflicts(model, text=text)
    clean, plain = (ahead(model, batch, of.foil)[0] for batch in (of.told, of.plain))
    n_layers = model.cfg.n_layers
    n = max(1, round(share * n_layers))

    def without(layers: Sequence[int]) -> np.ndarray:
        source = Named(name="other words", value=of.elsewhere)
        sites = [Site(kind="mlp_out", layer=layer, pos="last") for layer in layers]
        removed = [Zero(site=s) if kind == "zero" else Mean(site=s, source=source, over="last") for s in sites]
        return ahead(model, of.told, of.foil, lambda rows: removed)[0]

    late, early, before = (without(range(start, start + n)) for start in (n_layers - n, 0, max(0, n_layers - 2 * n)))
    return {
        "left": late,
        "more": late - np.maximum(early, before),
        "early_more": early - late,
        "clean": clean,
        "raised": clean - plain,
        GATE: np.minimum(-clean, (clean - plain) / 2),
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
    "early ones or those before them does.",
    source="Chen, Bruna & Bietti 2024",
    parts=(turns("left"), by_logits("more")),
    gate=Gate(
        statement="answers with the global token, by half a logit or more, and the text raises the other by a logit",
        at_least=0.5,
    ),
    controls=controls(positive=(_LATE,), negative=(_EARLY, UNTRAINED)),
    measure=measure,
    explanation=TEXTS.explain("G3"),
    factors={"share": (0.2, 0.5), "kind": ("zero",), "text": (PEOPLE,)},
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
