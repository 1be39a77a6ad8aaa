"""T16: recall needs attention and the MLP; neither suffices alone.

Refuted if in most seeds recall survives the removal of the MLP, or of all heads, or is learned without one of them.

Measured is the accuracy of recall on repeats over unseen mappings: of v3 with the outputs of its MLP, or z of all its
heads, replaced by their mean over the repeats (`without_mlp`, `without_attention`; 2,880 sequences, drawn by the seed),
and of models trained without either (`trained_without_mlp`, `trained_without_attention`; every sequence). The mean is
over repeats, so that what is known of every one of them stays: the mildest removal, the hardest on the claim. All four
must be below one half. Rivals: attention alone recalls, or the MLP alone, if trained so, in 90 % and more.

It shows what this model cannot do without, and what training finds without it. It does not show what either part does.
Without attention the last position sees nothing of the context, so that those parts can only fail by an error.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Subject
from mnemoscope.analyses import LEARNED, accuracy_by_skill
from mnemoscope.core import Replacement
from mnemoscope.judging import GATE, Measured, case, controls, most, table
from mnemoscope.models import planted, together, untrained
from mnemoscope.systems.tiny_recall.analyses.removal_costs import all_heads, all_mlps, skills_without
from mnemoscope.systems.tiny_recall.claim_parts import REPEATS, tiny_recall, units
from mnemoscope.systems.tiny_recall.constructed import dissociated, two_layer_recall

HALF = 0.5
RECALLS = 0.9
UNITS = units("v3", "v3-no-mlp", "v3-no-attention")
_PARTS = ("without_mlp", "without_attention", "trained_without_mlp", "trained_without_attention")


def measure(subject: Subject, *, kind: Replacement = "mean") -> dict[str, float]:
    """Accuracy of `recall` on unseen mappings, and what is left of it without all MLPs or all heads, from 0 to 1.

    A model that has no MLP loses nothing with it.

    Args:
        subject: Its seed draws the repeats on which parts are removed.
        kind: How they are removed.

    Raises:
        InputError: The model is too small for the task.
    """
    intact = accuracy_by_skill(subject)
    targets = {"without_mlp": all_mlps(subject.model), "without_attention": all_heads(subject.model)}
    left = skills_without(subject, targets, kind=kind, skills=("recall",)).accuracy.sel(skill="recall")
    return {
        GATE: min(intact.values()),
        "recall": intact["recall"],
        **{name: float(left.sel(component=name)) for name in targets},
    }


def compare(measured: Mapping[str, Measured]) -> dict[str, float]:
    """What v3 recalls after removals, and what models recall that were trained without a part."""
    return {
        GATE: float(measured["v3"][GATE]),
        "without_mlp": float(measured["v3"]["without_mlp"]),
        "without_attention": float(measured["v3"]["without_attention"]),
        "trained_without_mlp": float(measured["v3-no-mlp"]["recall"]),
        "trained_without_attention": float(measured["v3-no-attention"]["recall"]),
    }


def outcome(without_mlp: float, without_attention: float, no_mlp: float, no_attention: float) -> dict[str, Measured]:
    """A planted outcome: the four accuracies in the order of the parts."""
    v3 = {GATE: 1.0, "without_mlp": without_mlp, "without_attention": without_attention}
    return {"v3": v3, "v3-no-mlp": {"recall": no_mlp}, "v3-no-attention": {"recall": no_attention}}


_both_needed = case("both are needed", together(untrained(UNITS), planted("v3", dissociated, REPEATS)), n=1)
"""One model recalls by a head and the MLP; those without either have learned nothing."""
_attention_recalls = case(
    "attention recalls",
    together(untrained(UNITS), *(planted(name, two_layer_recall, REPEATS) for name in ("v3", "v3-no-mlp"))),
    n=1,
)
"""Two models recall by attention alone, in two layers; the one without attention has learned nothing."""
_CLAIM = tiny_recall(
    id="T16",
    statement="Recall needs attention and the MLP: without either it is lost, and it is not learned.",
    source="tiny-recall, article on the model with repeats",
    parts=tuple(most(name, "below", HALF, "accuracy") for name in _PARTS),
    gate=LEARNED,
    units=UNITS,
    controls=controls(
        positive=(_both_needed,),
        negative=(
            _attention_recalls,
            table("learned without the MLP", outcome(0.2, 0.2, 1.0, 0.2)),
            table("half is left", outcome(HALF, 0.2, 0.2, 0.2)),
        ),
    ),
    measure=measure,
    compare=compare,
    factors={"kind": ("zero", "resample")},
)
CLAIM = _CLAIM.against(
    _CLAIM.rival(
        "attention",
        "Attention suffices: a model trained without the MLP recalls.",
        parts=(most("trained_without_mlp", "above", RECALLS, "accuracy"),),
        controls=controls(positive=(_attention_recalls,), negative=(_both_needed,)),
        prompts="enumerated",
    ),
    _CLAIM.rival(
        "mlp",
        "The MLP suffices: a model trained without attention recalls.",
        parts=(most("trained_without_attention", "above", RECALLS, "accuracy"),),
        controls=controls(
            positive=(table("learned without attention", outcome(0.2, 0.2, 0.2, 1.0)),), negative=(_both_needed,)
        ),
        prompts="enumerated",
    ),
)
CLAIMS.add(CLAIM.id, CLAIM)
