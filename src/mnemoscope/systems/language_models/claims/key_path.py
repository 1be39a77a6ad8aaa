"""G1: previous-token heads feed induction heads through their keys (Elhage et al. 2021; Olsson et al. 2022).

An induction head finds the token after an earlier occurrence of the current one, since an earlier head has written
there what the token before it is. The path is cut as `paths` says.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mnemoscope import CLAIMS, Gate, HookedModel
from mnemoscope.claims import GATE, case, controls, table
from mnemoscope.systems.language_models.claim_parts import (
    LEAST_ATTENTION,
    TEXTS,
    UNTRAINED,
    about_models,
    carries,
    leads,
)
from mnemoscope.systems.language_models.constructed import copying
from mnemoscope.systems.language_models.paths import Through, attention_to_successor
from mnemoscope.systems.language_models.prompts import ASKED, N_CHOOSING, N_SEQUENCES, REFERENCE, repeated
from mnemoscope.systems.language_models.reading import (
    SHARE,
    Head,
    beside_random,
    by_score,
    lost,
    random_heads,
)
from mnemoscope.systems.language_models.words import ANY, COMMON


def measure(model: HookedModel, *, share: float = SHARE, words: str = COMMON) -> Mapping[str, Any]:
    """Per sequence `effect`, `beyond`, `lost` and `lost_random` (of the path through the keys), `through_query`,
    `more`, and the gate: the attention of the induction heads.

    A share of all heads are called induction heads, and as many previous-token heads. `words` is a set of words.
    """
    readers = by_score(model, "induction", share=share, words=words)
    top = max(layer for layer, _ in readers)
    writers: list[Head] = by_score(model, "previous token", share=share, below=top, words=words) if top else []
    sets = [writers, *random_heads(model, writers, named=readers)]
    asked, reference = (
        repeated(model, n=n, seed=seed, words=words) for n, seed in ((N_SEQUENCES, ASKED), (N_CHOOSING, REFERENCE))
    )
    paths: tuple[Through, ...] = ("k", "q")
    cuts: list[tuple[Through, list[Head]]] = [(through, heads) for through in paths for heads in sets]
    found = attention_to_successor(model, asked, readers, cuts, reference).numpy()
    clean = found[0]
    key, query = ([lost(clean, each, LEAST_ATTENTION) for each in half] for half in np.split(found[1:], 2))
    by_key, by_query = beside_random(key), beside_random(query)["effect"]
    return {**by_key, "through_query": by_query, "more": by_key["effect"] - by_query, GATE: clean}


_COPYING = case("induction circuit", copying, n=2)
_QUERY = table(
    "through queries",
    {"model": {"effect": np.zeros(4), "more": np.full(4, -0.5), "through_query": np.full(4, 0.5), GATE: np.ones(4)}},
)
_G1 = about_models(
    id="G1",
    statement="Previous-token heads feed induction heads through their keys: without this path more of the induction "
    "heads' attention is lost than without that of as many random heads of the same layers, and more than without that "
    "through their queries.",
    source="Elhage et al. 2021; Olsson et al. 2022",
    n_replicates=N_SEQUENCES,
    parts=(carries("effect", unit="of the attention"), leads("more", unit="of the attention")),
    gate=Gate(statement="gives a fifth of the induction heads' attention or more to the right token", at_least=0.2),
    controls=controls(positive=(_COPYING,), negative=(UNTRAINED, _QUERY)),
    measure=measure,
    explanation=TEXTS.explain("G1"),
    factors={"share": (0.02, 0.1), "words": (ANY,)},
)
G1 = _G1.against(
    _G1.rival(
        "query",
        "Previous-token heads feed induction heads through their queries.",
        parts=(carries("through_query", unit="of the attention"),),
        controls=controls(positive=(_QUERY,), negative=(_COPYING, UNTRAINED)),
    )
)
CLAIMS.add(G1.id, G1)
