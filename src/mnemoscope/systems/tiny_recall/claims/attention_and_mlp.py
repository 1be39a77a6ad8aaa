"""T16: recall needs attention and the MLP; neither suffices alone.

No attention at all is no question: the last position then sees only x, and no weights can recall.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, HookedModel, Site, Subject
from mnemoscope.analyses import accuracy_by_skill
from mnemoscope.claims import GATE, LEARNED, Case, Measured, case, controls, most, table
from mnemoscope.core import Replacement
from mnemoscope.models import combined, set_by_hand, untrained
from mnemoscope.systems.tiny_recall.analyses.removal_costs import all_heads, all_mlps, skills_without
from mnemoscope.systems.tiny_recall.claim_parts import RECALLS, REPEATS, TEXTS, asked_of_more, units
from mnemoscope.systems.tiny_recall.constructed import dissociated, two_layer_recall

UNITS = units("v3", "v3-no-mlp")
_PARTS = ("without_mlp", "fixed_attention", "trained_without_mlp")


def measure(subject: Subject, *, kind: Replacement = "mean") -> dict[str, float]:
    """Accuracy of `recall` on unseen mappings, from 0 to 1, and what is left of it without parts.

    These are all MLPs, removed as `kind` says, fixed attention and all heads. A model that has no MLP loses nothing
    with it. The seed draws the repeats on which parts are removed.
    """
    intact = accuracy_by_skill(subject)
    parts = {"without_mlp": all_mlps(subject.model), "without_attention": all_heads(subject.model)}
    fixed = {"fixed_attention": all_patterns(subject.model)}
    left = {
        name: float(without.accuracy.sel(skill="recall", component=name))
        for without in (
            skills_without(subject, parts, kind=kind, skills=("recall",)),
            skills_without(subject, fixed, skills=("recall",)),
        )
        for name in without.component.values.tolist()
    }
    return {GATE: min(intact.values()), "recall": intact["recall"], **left}


def all_patterns(model: HookedModel) -> tuple[Site, ...]:
    """The attention patterns of every head, to be replaced together."""
    heads = ((n, h) for n in range(model.cfg.n_layers) for h in range(model.cfg.n_heads))
    return tuple(Site(kind="pattern", layer=n, head=h) for n, h in heads)


def compare(measured: Mapping[str, Measured]) -> dict[str, float]:
    """The recall of v3 after removals, and of the model that was trained without an MLP."""
    v3, trained = measured["v3"], measured["v3-no-mlp"]
    beside = {"without_attention": float(v3["without_attention"])} if "without_attention" in v3 else {}
    return {
        GATE: float(v3[GATE]),
        "without_mlp": float(v3["without_mlp"]),
        "fixed_attention": float(v3["fixed_attention"]),
        "trained_without_mlp": float(trained["recall"]),
        **beside,
    }


def outcome(without_mlp: float, fixed_attention: float, trained_without_mlp: float) -> dict[str, Measured]:
    """A planted outcome: the three accuracies in the order of the parts."""
    v3 = {GATE: 1.0, "without_mlp": without_mlp, "fixed_attention": fixed_attention}
    return {"v3": v3, "v3-no-mlp": {"recall": trained_without_mlp}}


def _half_way(part: str) -> Case:
    """A planted outcome at the margin of one part."""
    left = {**dict.fromkeys(_PARTS, 0.2), part: RECALLS}
    return table(f"half way: {part}", outcome(*left.values()))


_both_needed = case("both are needed", combined(untrained(UNITS), set_by_hand("v3", dissociated, REPEATS)), n=1)
"""One model recalls by a head and the MLP; the one without an MLP has learned nothing."""
_attention_recalls = case(
    "attention recalls", combined(*(set_by_hand(name, two_layer_recall, REPEATS) for name in UNITS)), n=1
)
"""Both models recall by attention alone, in two layers."""
_fixed = table("fixed attention recalls", outcome(0.2, 1.0, 0.2))
_CLAIM = asked_of_more(
    id="T16",
    statement="Recall needs attention that depends on the sequence, and the MLP: without either it is lost.",
    source="tiny-recall, article on the model with repeats",
    parts=tuple(most(name, "below", RECALLS, "accuracy") for name in _PARTS),
    gate=LEARNED,
    units=UNITS,
    controls=controls(positive=(_both_needed,), negative=(_attention_recalls, _fixed, *map(_half_way, _PARTS))),
    measure=measure,
    compare=compare,
    explanation=TEXTS.explain("T16"),
    factors={"kind": ("zero", "resample")},
)
CLAIM = _CLAIM.against(
    _CLAIM.rival(
        "attention",
        "Attention suffices: a model trained without the MLP recalls.",
        parts=(most("trained_without_mlp", "above", RECALLS, "accuracy"),),
        controls=controls(positive=(_attention_recalls,), negative=(_both_needed, _half_way("trained_without_mlp"))),
        prompts="enumerated",
    ),
    _CLAIM.rival(
        "fixed",
        "Attention that is the same in every sequence suffices.",
        parts=(most("fixed_attention", "above", RECALLS, "accuracy"),),
        controls=controls(positive=(_fixed,), negative=(_both_needed, _half_way("fixed_attention"))),
    ),
)
CLAIMS.add(CLAIM.id, CLAIM)
