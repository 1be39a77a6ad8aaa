"""T21: the single head of v1 is the same elimination head that v3 has."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mnemoscope import CLAIMS, Gate, Subject
from mnemoscope.analyses import copying, learned
from mnemoscope.claims import GATE, Case, Explanation, Measured, Quantity, case, controls, most, table
from mnemoscope.models import combined, set_by_hand
from mnemoscope.systems.tiny_recall.analyses.attention_by_role import attention_by_role, on_earlier_y
from mnemoscope.systems.tiny_recall.claim_parts import (
    ELIMINATION_HEAD,
    OTHER_TRAINING,
    REPEATS,
    SHOWN,
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
        GATE: learned(subject, ["elimination"]),
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


_TWO_HEADS = Explanation(
    procedure=f"{SHOWN} v1 and v3 of a seed were trained on the same mappings. {ELIMINATION_HEAD} The only head of v1 "
    "has that name. A is its attention from the last x to the four earlier y together, mean over the 1,440 fresh "
    "sequences over the other half. C is the copying score of its OV circuit W_E W_V W_O W_U between the five values "
    "(LayerNorm folded in, rows centred): Σ λ ÷ Σ |λ| over its eigenvalues λ.",
    quantities={
        "attention": Quantity(
            words="the distance between the shares of attention on earlier y", formula="|A(v1) − A(v3)|"
        ),
        "copying": Quantity(words="the distance between the copying scores", formula="|C(v1) − C(v3)|"),
        GATE: Quantity(
            words="the accuracy of elimination of the weaker model", formula="min(elimination(v1), elimination(v3))"
        ),
        **{f"{unit} share": Quantity(words=f"A of the head of {unit}") for unit in UNITS},
        **{f"{unit} copying": Quantity(words=f"C of the head of {unit}") for unit in UNITS},
    },
    margins="The margin is a tenth of the attention: A runs from 0 to 1, and is 4/9 where a head looks at all "
    "positions alike. The copying score runs from −1 (each value lowers its own logit) to 1 (raises it), so that .25 "
    "is an eighth of its range. The rival asks for a distance of attention above the same tenth.",
    limits="It shows that the two heads agree in two summaries, of their pattern and of their direct path to the "
    "logits. It does not show that they do the same: what the MLP makes of a head's output is in neither.",
)


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
    explanation=_TWO_HEADS,
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
