"""G4: indirect-object identification goes through heads that attend to the right name and copy it.

The heads are those with the highest direct effects on the lead, chosen on stories with other names. A factor chooses
those that copy names most and attend to the IO name.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from mnemoscope import CLAIMS, Gate, HookedModel
from mnemoscope.claims import GATE, case, controls, table
from mnemoscope.core import Replacement
from mnemoscope.systems.language_models.claim_parts import TEXTS, UNTRAINED, about_models, carries, leads
from mnemoscope.systems.language_models.constructed import naming, relaying
from mnemoscope.systems.language_models.name_circuit import (
    attention_from_last,
    direct_paths,
    exchanged_attention,
    name_copying,
    named_heads,
    tellings,
)
from mnemoscope.systems.language_models.prompts import ASKED, CHOOSING, N_CHOOSING, N_QUESTIONS, REFERENCE
from mnemoscope.systems.language_models.reading import (
    LEAST,
    SHARE,
    ahead,
    beside_random,
    highest,
    lost,
    lost_each,
    n_chosen,
    random_heads,
    without,
)
from mnemoscope.systems.language_models.words import COMMON, GIVING, RARE, TALKING

COPYING = "attention and copying"


def measure(
    model: HookedModel,
    *,
    share: float = SHARE,
    by: Literal["direct effect", "attention and copying"] = "direct effect",
    kind: Replacement = "mean",
    names: str = COMMON,
    stories: str = GIVING,
) -> Mapping[str, Any]:
    """Per story `effect`, `beyond`, `copied`, `attention`, `lost`, `lost_random`, and the gate: the lead.

    A share of all heads is chosen `by` a score, and replaced as `kind` says. `names` and `stories` are sets of these.
    """
    choosing, pairs, reference = (
        tellings(model, n=n, seed=seed, names=names, stories=stories)
        for n, seed in ((N_CHOOSING, CHOOSING), (N_QUESTIONS, ASKED), (N_CHOOSING, REFERENCE))
    )
    scores = name_copying(model, choosing.clean) if by == COPYING else direct_paths(model, choosing).effects()
    chosen, named = highest(scores, n_chosen(model, share)), named_heads(model, choosing, share=max(share, SHARE))
    clean = ahead(model, pairs.clean, pairs.foil)[0]
    sets = [chosen, *random_heads(model, chosen, named=named)]
    removals = [without(heads, reference.corrupted, kind, pos="last", within="story") for heads in sets]
    each = lost_each(model, pairs.clean, pairs.foil, clean, removals)
    exchanged = ahead(model, pairs.clean, pairs.foil, exchanged_attention(model, pairs.clean, chosen))[0]
    due, first, second = attention_from_last(model, pairs.clean, chosen, ("IO", "S1", "S")).mean(1)
    return {
        **beside_random(each),
        "copied": lost(clean, exchanged, LEAST) / 2,
        "attention": due - first - second,
        GATE: clean,
    }


_NAMING, _RELAYED = case("name copying", naming, n=1), case("names copied before", relaying, n=1)
_NONE = dict.fromkeys(("effect", "beyond", "copied"), np.zeros(4))
_ANY = table("any heads", {"model": {**_NONE, "lost_random": np.full(4, 0.5), GATE: np.ones(4)}})
_G4 = about_models(
    id="G4",
    statement="Indirect-object identification goes through heads that attend to the right name and copy it: the "
    "lead is lost without the heads of the largest direct effect, and turns round where they attend to the other name.",
    source="Wang et al. 2022",
    parts=(
        carries("effect", unit="of the lead"),
        leads("beyond", unit="of the lead"),
        carries("copied", unit="of the lead"),
    ),
    gate=Gate(statement="puts the IO name ahead by half a logit or more", at_least=0.5),
    controls=controls(positive=(_NAMING,), negative=(_RELAYED, UNTRAINED, _ANY)),
    measure=measure,
    explanation=TEXTS.explain("G4"),
    factors={
        "share": (0.02,), "by": (COPYING,), "kind": ("resample",), "names": (RARE,), "stories": (TALKING,),
    },
)  # fmt: skip
G4 = _G4.against(
    _G4.rival(
        "any",
        "Random heads of the same layers, without the named ones, cost a quarter of the lead.",
        parts=(carries("lost_random", unit="of the lead"),),
        controls=controls(positive=(_ANY,), negative=(_NAMING, UNTRAINED)),
    )
)
CLAIMS.add(G4.id, G4)
