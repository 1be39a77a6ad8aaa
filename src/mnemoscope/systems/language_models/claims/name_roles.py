"""G6: indirect-object identification is shared out as published for GPT-2 small, each role by single heads.

A name mover attends to the IO name and writes it, and a negative name mover attends to it and writes against it. An
S-inhibition head attends to S2 and directs the queries of the name movers away from S. Of each role the strongest head
is chosen on stories with other names.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mnemoscope import CLAIMS, Gate, HookedModel, PromptPairs
from mnemoscope.claims import GATE, case, controls, table
from mnemoscope.systems.language_models.claim_parts import LEAST_ATTENTION, TEXTS, UNTRAINED, about_models, leads
from mnemoscope.systems.language_models.constructed import sharing
from mnemoscope.systems.language_models.name_circuit import (
    Roles,
    attention_from_last,
    attention_told_otherwise,
    direct_paths,
    find_roles,
    named_heads,
    tellings,
)
from mnemoscope.systems.language_models.prompts import ASKED, CHOOSING, N_CHOOSING, N_QUESTIONS
from mnemoscope.systems.language_models.reading import LEAST, SHARE, Head, lost, random_heads
from mnemoscope.systems.language_models.words import COMMON, GIVING, RARE, TALKING

FEW = 0.02
"""Share of all heads that are movers, to whose queries inhibitors write."""


def measure(model: HookedModel, *, share: float = FEW, names: str = COMMON, stories: str = GIVING) -> Mapping[str, Any]:
    """Per story `written`, `attention`, `against`, `against_attention`, `told`, `again`, `written_random`, the heads
    `mover`, `negative_mover` and `inhibitor`, and the gate: the lead.

    A share of all heads are movers at most, of which the strongest is measured. `names` and `stories` are sets.
    """
    choosing, pairs = (
        tellings(model, n=n, seed=seed, names=names, stories=stories)
        for n, seed in ((N_CHOOSING, CHOOSING), (N_QUESTIONS, ASKED))
    )
    roles = find_roles(model, choosing, share=share)
    named = [*roles.movers, *roles.negative, *roles.inhibitors, *named_heads(model, choosing, share=SHARE)]
    paths = direct_paths(model, pairs)
    clean = paths.lead()

    def written(heads: Sequence[Head]) -> np.ndarray:
        return lost(clean, paths.lead(heads), LEAST)

    mover, negative = roles.movers[:1], roles.negative[:1]
    of_random = np.mean([written(heads) for heads in random_heads(model, mover, named=named)], 0)
    due, first, again = attention_from_last(model, pairs.clean, [*mover, *negative], ("IO", "S1", "S"))
    to_due = due - first - again
    told, to_again = _inhibition(model, pairs, roles, named)
    heads = {"mover": mover, "negative_mover": negative, "inhibitor": roles.inhibitors[:1]}
    return {
        "written": written(mover) - of_random,
        "attention": to_due[0],
        "against": -written(negative),
        "against_attention": to_due[1],
        "told": told,
        "again": to_again,
        "written_random": of_random,
        **{name: np.full(len(pairs), _number(of)) for name, of in heads.items()},
        GATE: clean,
    }


def _number(heads: Sequence[Head]) -> int:
    """A hundred times the layer and the head; -1 for no head."""
    return next((100 * layer + head for layer, head in heads), -1)


def _inhibition(
    model: HookedModel, pairs: PromptPairs, roles: Roles, named: Sequence[Head]
) -> tuple[np.ndarray, np.ndarray]:
    """The worth of the inhibitor to the movers' attention, beyond that of random heads; and what it attends to."""
    inhibitor = roles.inhibitors[:1]
    if not inhibitor:
        return np.zeros(len(pairs)), np.zeros(len(pairs))
    sets = [[], inhibitor, *random_heads(model, inhibitor, named=named)]
    attention, *left = attention_told_otherwise(model, pairs, roles.movers, sets)
    own, *others = (lost(attention, each, LEAST_ATTENTION) for each in left)
    again, due, first = attention_from_last(model, pairs.clean, inhibitor, ("S", "IO", "S1"))[:, 0]
    return own - np.mean(others, 0), again - due - first


_SHARED = case("shared out by hand", sharing, n=1)
_NONE = dict.fromkeys(("written", "attention", "against", "against_attention", "told", "again"), 0.0)
_EVENLY = {**_NONE, "written_random": 0.5, GATE: 1.0}
_ANY = table("any heads", {"model": {name: np.full(4, value) for name, value in _EVENLY.items()}})
_G6 = about_models(
    id="G6",
    statement="Indirect-object identification is shared out between single heads: one that attends to the name that is "
    "due writes it, one that attends to it writes against it, and an earlier one that attends to the repeated name "
    "directs those that write through their queries.",
    source="Wang et al. 2022",
    parts=(
        leads("written", unit="of the lead"),
        leads("attention", unit="of the attention"),
        leads("against", unit="of the lead"),
        leads("against_attention", unit="of the attention"),
        leads("told", unit="of the movers' attention"),
        leads("again", unit="of the attention"),
    ),
    gate=Gate(statement="puts the IO name ahead by half a logit or more", at_least=0.5),
    controls=controls(positive=(_SHARED,), negative=(UNTRAINED, _ANY)),
    measure=measure,
    explanation=TEXTS.explain("G6"),
    factors={"share": (0.05,), "names": (RARE,), "stories": (TALKING,)},
)
G6 = _G6.against(
    _G6.rival(
        "any",
        "A random head of the mover's layer, without the named ones, writes a tenth of the lead.",
        parts=(leads("written_random", unit="of the lead"),),
        controls=controls(positive=(_ANY,), negative=(_SHARED, UNTRAINED)),
    )
)
CLAIMS.add(G6.id, G6)
