"""T21: the single head of v1 is the same elimination head that v3 has.

Refuted if in most seeds the two heads differ in where they look or in what they do to the values that they find. For
v1's head and for that head of v3 which elimination needs most (`analyses.attention_by_role`),

    attention = |difference of the share of attention from the last x on earlier y|, on fresh sequences over unseen
                mappings, whose last x is new
    copying   = |difference of the copying score of the OV circuit|, over the tokens 1 to V: the sum of the eigenvalues
                over the sum of their moduli, from -1 (each token lowers its own logit) to 1 (`analyses.circuits`)

Both models of a seed were trained on the same mappings. The rival says that the heads look at different things.

It shows that the two heads agree in two summaries, of their pattern and of their direct path to the logits. It does
not show that they do the same: what the MLP makes of a head's output is in neither number.
"""

from collections.abc import Mapping

import numpy as np

from mnemoscope import CLAIMS, Claim, Configuration, Control, Criterion, Gate, Subject
from mnemoscope.analyses import copying, learned
from mnemoscope.judging import GATE, Measured
from mnemoscope.models import planted
from mnemoscope.systems.tiny_recall.analyses.attention_by_role import attention_by_role, on_earlier_y
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only
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


_ALONE = planted("v1", elimination_only, PermutationLookup())
_BESIDE = planted("v3", dissociated, PermutationLookup(repeat_ratio=0.3))


def same_heads(case: int) -> dict[str, Subject]:
    """A control: one and the same head by hand, alone and beside recall."""
    return {**_ALONE(case), **_BESIDE(case)}


def as_different_as_allowed(case: int) -> dict[str, Measured]:
    """A control: heads whose attention differs by exactly the margin."""
    return {unit: {GATE: 1.0, "share": share, "copying": -1.0} for unit, share in (("v1", 1.0), ("v3", 0.9))}


def elsewhere(case: int) -> dict[str, Measured]:
    """A control: v3's head gives a fifth of its attention to other tokens, v1's none."""
    return {unit: {GATE: 1.0, "share": share, "copying": -1.0} for unit, share in (("v1", 1.0), ("v3", 0.8))}


def opposite(case: int) -> dict[str, Measured]:
    """A control: v1's head lowers the values that it finds, v3's raises them."""
    return {unit: {GATE: 1.0, "share": 1.0, "copying": score} for unit, score in (("v1", -1.0), ("v3", 1.0))}


_SAME = "the same head by hand"
_MARGIN = Control(name="a difference of margin size", kind="negative", plant=as_different_as_allowed)
CLAIM = Claim(
    id="T21",
    system="tiny-recall",
    statement="The single head of v1 is the same elimination head that v3 has.",
    source="tiny-recall, article",
    parts=(
        Criterion(
            name="attention", quantifier="most", margin=_SAME_ATTENTION, direction="below", unit="share of attention"
        ),
        Criterion(name="copying", quantifier="most", margin=_SAME_COPYING, direction="below", unit="copying score"),
    ),
    gate=LEARNED,
    units=UNITS,
    n_replicates=32,
    rivals=(
        Claim(
            id="T21-different",
            system="tiny-recall",
            statement="The heads look at different things.",
            source="rival of T21",
            parts=(Criterion(name="attention", quantifier="most", margin=_SAME_ATTENTION, unit="share of attention"),),
            gate=LEARNED,
            units=UNITS,
            n_replicates=32,
            controls=(
                Control(name="attention elsewhere", kind="positive", plant=elsewhere),
                Control(name=_SAME, kind="negative", plant=same_heads),
                _MARGIN,
            ),
            measure=elimination_head,
            compare=difference,
            prompts="enumerated",
        ),
    ),
    controls=(
        Control(name=_SAME, kind="positive", plant=same_heads),
        Control(name="attention elsewhere", kind="negative", plant=elsewhere),
        Control(name="the opposite effect on values", kind="negative", plant=opposite),
        _MARGIN,
    ),
    measure=elimination_head,
    compare=difference,
    factors={"recipe": ("quick",), "model.normalization": ("none",)},
    prompts="enumerated",
)
CLAIMS.add(CLAIM.id, CLAIM)
