"""G3: removing late MLPs turns the answer from the global to the in-context token.

In a small model trained on such data the last MLP says the global token, and without it the in-context one is left
(Chen, Bruna & Bietti 2024, "How truncating weights improves reasoning in language models"; the claims of noisy recall).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mnemoscope import CLAIMS, Gate, HookedModel, Mean, Named, Site
from mnemoscope.claims import GATE, Explanation, Quantity, case, controls
from mnemoscope.systems.language_models.claim_parts import LEAST, UNTRAINED, about_models, by_logits
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


_EXPLANATION = Explanation(
    procedure="A text ends with a word that one word mostly follows, and another one in this text: “Everyone here "
    "talks about Albert Garden . We like Albert Garden and we met Albert”. The lead Δ is logit(successor in the text) "
    "− logit(successor elsewhere) at the last token. The outputs of the MLPs of the last third of the layers (late) "
    "are replaced there by their means over all such texts that are as long, whatever the word, and so are those of "
    "the first third (early).",
    quantities={
        "effect": Quantity(
            words="by how many logits the lead rises without the late MLPs", formula="Δ(late ← mean) − Δ"
        ),
        "more": Quantity(
            words="by how many logits more that is than without the early ones",
            formula="Δ(late ← mean) − Δ(early ← mean)",
        ),
        "early_more": Quantity(
            words="by how many logits more the lead rises without the early MLPs than without the late ones",
            formula="Δ(early ← mean) − Δ(late ← mean)",
        ),
        "turned": Quantity(
            words="whether the lead changes its sign without the late MLPs",
            formula="1 if Δ < 0 < Δ(late ← mean), else 0",
        ),
        "clean": Quantity(words="the lead of the whole model, in logits", formula="Δ"),
        GATE: Quantity(
            words="the lead of the successor elsewhere at the end of a text that gives the word no other one, in "
            "logits",
            formula="logit(successor elsewhere) − logit(successor in the other text)",
        ),
    },
    margins="A logit makes the one answer e times as likely against the other; the margin was fixed before any "
    "language model was looked at.",
    limits="It shows which way the late MLPs push at that token. It does not show that the answer changes: “turned” "
    "tells in how many texts the lead changes its sign. Removing a third of the MLPs may hurt everything that is said.",
)
_LATE, _EARLY = case("late bigrams", late, n=1), case("early bigrams", early, n=1)
_G3 = about_models(
    id="G3",
    statement="Removing late MLPs turns the answer from the global to the in-context token, and more than removing "
    "early ones does.",
    source="Chen, Bruna & Bietti 2024",
    n_replicates=N_TEXTS,
    parts=(by_logits("effect"), by_logits("more")),
    gate=Gate(statement="has, without the text, the global successor ahead by a logit in", at_least=LEAST),
    controls=controls(positive=(_LATE,), negative=(_EARLY, UNTRAINED)),
    measure=measure,
    explanation=_EXPLANATION,
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
