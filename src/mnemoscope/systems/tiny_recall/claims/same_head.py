"""T21: the single head of v1 is the same elimination head that v3 has.

Refuted if in most seeds the two heads differ in where they look or in what they do to the values that they find. For
v1's head and for that head of v3 which elimination needs most (`analyses.attention_by_role`),

    attention = |difference of the share of attention from the last x on earlier y|, on fresh sequences over unseen
                mappings, whose last x is new
    copying   = |difference of the copying score of the OV circuit|, over the tokens 1 to V: the sum of the eigenvalues
                over the sum of their absolute values, from -1 (each token lowers its own logit) to 1

Both models of a seed were trained on the same mappings. The rival says that the heads look at different things.

It shows that the two heads agree in two summaries, of their pattern and of their direct path to the logits. It does
not show that they do the same: what the MLP makes of a head's output is in neither number.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from mnemoscope import CLAIMS, Claim, Configuration, Criterion, Gate, Subject
from mnemoscope.analyses import copying, learned
from mnemoscope.judging import GATE, Measured
from mnemoscope.models import planted
from mnemoscope.systems.tiny_recall.analyses.attention_by_role import attention_by_role, on_earlier_y
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only
from mnemoscope.systems.tiny_recall.controls import REPEATS, negative, positive, table, together
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

UNITS = {name: Configuration(preset=name, recipe="published") for name in ("v1", "v3")}
LEARNED = Gate(statement="answers elimination in 99 % of unseen sequences or more", at_least=0.99)
_SAME_ATTENTION, _SAME_COPYING = 0.1, 0.25


def elimination_head(subject: Subject) -> dict[str, float]:
    """The share of the elimination head's attention on earlier y, from the last x when it is new; its copying score.

    Args:
        subject: A model with heads.

    Raises:
        InputError: The model is not supported, or too small for the task.
    """
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


def _heads(*, share: float = 1.0, copying: float = -1.0) -> Callable[[int], dict[str, Measured]]:
    """A planted outcome: v1's head attends to earlier y only and lowers what it finds, v3's as the arguments say."""
    v1 = {GATE: 1.0, "share": 1.0, "copying": -1.0}
    return table({"v1": v1, "v3": {GATE: 1.0, "share": share, "copying": copying}})


_ELSEWHERE = _heads(share=0.8)
_MARGIN = negative("a difference of margin size", _heads(share=0.9))
_SAME_HEADS = together(planted("v1", elimination_only, PermutationLookup()), planted("v3", dissociated, REPEATS))
"""One and the same head by hand, alone and beside recall."""
_ATTENTION = Criterion(
    name="attention", quantifier="most", margin=_SAME_ATTENTION, direction="below", unit="share of attention"
)
_CLAIM = Claim(
    id="T21",
    system="tiny-recall",
    statement="The single head of v1 is the same elimination head that v3 has.",
    source="tiny-recall, article",
    parts=(
        _ATTENTION,
        Criterion(name="copying", quantifier="most", margin=_SAME_COPYING, direction="below", unit="copying score"),
    ),
    gate=LEARNED,
    units=UNITS,
    n_replicates=32,
    controls=(
        positive("the same head by hand", _SAME_HEADS),
        negative("attention elsewhere", _ELSEWHERE),
        negative("the opposite effect on values", _heads(copying=1.0)),
        _MARGIN,
    ),
    measure=elimination_head,
    compare=difference,
    factors={"recipe": ("quick",), "model.normalization": ("none",)},
    prompts="enumerated",
)
CLAIM = _CLAIM.against(
    _CLAIM.rival(
        "different",
        "The heads look at different things.",
        parts=(replace(_ATTENTION, direction="above"),),
        controls=(
            positive("attention elsewhere", _ELSEWHERE),
            negative("the same head by hand", _SAME_HEADS),
            _MARGIN,
        ),
    )
)
CLAIMS.add(CLAIM.id, CLAIM)
