"""T21: the single head of v1 is the same elimination head that v3 has."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mnemoscope import CLAIMS, Gate, Subject
from mnemoscope.analyses import copying, lowest_skill_accuracy
from mnemoscope.claims import GATE, Case, Measured, case, controls, most, table
from mnemoscope.models import combined, set_by_hand
from mnemoscope.systems.tiny_recall.analyses.attention import attention_by_role, on_earlier_y
from mnemoscope.systems.tiny_recall.claim_parts import (
    OTHER_TRAINING,
    REPEATS,
    TEXTS,
    tiny_recall,
    units,
)
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

UNITS = units("v1", "v3", recipe="published")
LEARNED = Gate(statement="answers elimination in 99 % of unseen sequences or more", at_least=0.99)
_SAME_ATTENTION, _SAME_COPYING = 0.1, 0.25


def elimination_head(subject: Subject) -> dict[str, float]:
    """The share of the elimination head's attention on earlier y, from the last x when it is new; its copying score."""
    heads = attention_by_role(subject)
    layer, head = (int(number) for number in str(heads.component.values[0])[1:].split("H"))
    score = copying(subject.model, tokens=subject.task.answers).copying_score.sel(layer=layer, head=head)
    return {
        GATE: lowest_skill_accuracy(subject, ["elimination"]),
        "share": float(on_earlier_y(heads, subgroup="fresh")[-1]),
        "copying": float(score),
    }


def difference(units: Mapping[str, Measured]) -> Measured:
    """Distances between v1's head and v3's, and both values; the gate looks at the weaker model."""
    one, two = ({name: float(np.mean(value)) for name, value in units[name].items()} for name in ("v1", "v3"))
    return {
        GATE: min(one[GATE], two[GATE]),
        "attention": abs(one["share"] - two["share"]),
        "copying": abs(one["copying"] - two["copying"]),
        **{f"{unit} {name}": of[name] for unit, of in (("v1", one), ("v3", two)) for name in ("share", "copying")},
    }


def _heads(name: str, *, share: float = 1.0, copying: float = -1.0) -> Case:
    """A planted outcome: v1's head attends to earlier y only and lowers what it finds, v3's as the arguments say."""
    v1 = {GATE: 1.0, "share": 1.0, "copying": -1.0}
    return table(name, {"v1": v1, "v3": {GATE: 1.0, "share": share, "copying": copying}}, n=4)


_elsewhere = _heads("attention elsewhere", share=0.8)
_a_margin = _heads("a difference of margin size", share=0.9)
_same = case(
    "the same head by hand",
    combined(set_by_hand("v1", elimination_only, PermutationLookup()), set_by_hand("v3", dissociated, REPEATS)),
)
"""One and the same head by hand, alone and beside recall."""
_ATTENTION = most("attention", "below", _SAME_ATTENTION, "share of attention")
_CLAIM = tiny_recall(
    id="T21",
    statement="The single head of v1 is the same elimination head that v3 has.",
    source="tiny-recall, article",
    parts=(_ATTENTION, most("copying", "below", _SAME_COPYING, "copying score")),
    gate=LEARNED,
    units=UNITS,
    n_replicates=32,
    controls=controls(
        positive=(_same,),
        negative=(_elsewhere, _heads("the opposite effect on values", copying=1.0), _a_margin),
    ),
    measure=elimination_head,
    compare=difference,
    explanation=TEXTS.explain("T21", same_copying=_SAME_COPYING),
    factors=OTHER_TRAINING,
    prompts="enumerated",
)
CLAIM = _CLAIM.against(
    _CLAIM.rival(
        "different",
        "The heads look at different things.",
        parts=(replace(_ATTENTION, direction="above"),),
        controls=controls(positive=(_elsewhere,), negative=(_same, _a_margin)),
    )
)
CLAIMS.add(CLAIM.id, CLAIM)
