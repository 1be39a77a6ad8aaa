"""T14: elimination and recall are split across the two heads, so that each can be removed without the other skill.

The effects are the margins of `dissociation_margins`: `double` is the claim's, the others are its rivals'.
"""

import numpy as np
import xarray as xr

from mnemoscope import CLAIMS, InputError, Subject
from mnemoscope.analyses import dissociation_margins, learned
from mnemoscope.claims import EFFECT, GATE, Explanation, Measured, Quantity, controls, most, table
from mnemoscope.core import Replacement
from mnemoscope.systems.tiny_recall.analyses.carriers import roles_by_carrying
from mnemoscope.systems.tiny_recall.analyses.removal_costs import (
    Loss,
    Within,
    ablation_effect,
    all_heads,
    skills_without,
)
from mnemoscope.systems.tiny_recall.claim_parts import OTHER_TRAINING, UNTRAINED, as_v3, of_v3
from mnemoscope.systems.tiny_recall.constructed import dissociated, shared_store, store_and_match

MARGIN = 0.25
_SKILLS = ("elimination", "recall")
_JOINT = "both heads"


def measure(
    subject: Subject, *, kind: Replacement = "mean", within: Within = "is_repeat", metric: Loss = "accuracy"
) -> dict[str, float]:
    """The effects of the claim and of its rivals, in units of the metric, and the costs that they come from.

    The model has two heads; `within` says where means and resampled activations come from. The metric `log_prob` is the
    geometric mean of the answer's probability.
    """
    heads = all_heads(subject.model)
    if len(heads) != 2:
        raise InputError(f"the model must have two heads in all, for one skill each; got {len(heads)}; take v3's size")
    targets = {str(head): (head,) for head in heads} | {_JOINT: heads}
    without = skills_without(subject, targets, kind=kind, within=within, skills=_SKILLS)
    cost = ablation_effect(without, metric=metric)
    return {
        GATE: learned(subject),
        **_effects(cost.drop_sel(component=_JOINT), cost.sel(component=_JOINT)),
        **{f"{h} {s}": float(cost.sel(component=h, skill=s)) for h in targets for s in _SKILLS},
    }


def _effects(cost: xr.DataArray, joint: xr.DataArray) -> dict[str, float]:
    """The effects of the claim and of its rivals; over (component, skill), and over skill."""
    found = dissociation_margins(cost, joint, margin=MARGIN)
    return {EFFECT: found.pop("double"), **found}


def outcome(*costs: tuple[float, float]) -> dict[str, Measured]:
    """Planted costs: rows are the first head, the second head, and both; columns elimination and recall."""
    cost = xr.DataArray(np.array(costs), dims=("component", "skill"), coords={"skill": list(_SKILLS)})
    return {"v3": {GATE: 1.0, **_effects(cost[:2], cost[2])}}


_EXPLANATION = Explanation(
    procedure="Sequences over unseen mappings (all that are fresh, and 2,880 of the repeats, drawn by the seed) are "
    "answered with the output z of head h replaced by its mean over sequences of the same kind (fresh, or repeat), so "
    "that whether something repeats stays known. cost[h, s] is the accuracy on skill s that is lost. Removing a head "
    "costs a skill where that is above M = .25, and spares it where it is below. E is elimination, R recall; a and b "
    "are the heads, in the order that gives the larger value.",
    quantities={
        EFFECT: Quantity(
            words="by how much the weakest of four conditions is met: removing a costs elimination and spares recall, "
            "removing b costs recall and spares elimination",
            formula="max over (a, b) of min(cost[a, E] − M, M − cost[a, R], cost[b, R] − M, M − cost[b, E])",
        ),
        "single": Quantity(
            words="the same for: one head costs both skills, the other one exactly one of them",
            formula="max over (a, b) and s ≠ t of min(cost[a, E] − M, cost[a, R] − M, cost[b, s] − M, M − cost[b, t])",
        ),
        "both": Quantity(
            words="the same for: each head costs both skills", formula="min over h and s of cost[h, s] − M"
        ),
        "redundant": Quantity(
            words="the same for: no head costs a skill by itself, and both together cost both",
            formula="min over h and s of min(M − cost[h, s], cost[both heads, s] − M)",
        ),
    },
    margins="M is a quarter of all answers; a cost at M counts as neither, so that the effect has to be above 0.",
    limits="It shows which head each skill needs when heads are removed like this. It does not show that a head "
    "computes a skill by itself, nor what it writes.",
)
_CARRIERS = Explanation(
    procedure="Of minimal pairs of prompts the output z of one head is exchanged, and the share of the difference in "
    "the logits of the two answers that comes across is its recovery. Pairs of one kind exchange the answer, those of "
    "the other toggle whether the last x was seen before.",
    quantities={
        EFFECT: Quantity(
            words="by how much the weakest of four conditions is met: head a carries more than half of the exchanged "
            "answer and less than half of the toggled repeat, head b the other way round",
            formula="max over (a, b) of min(r[a, answer] − ½, ½ − r[a, repeat], r[b, repeat] − ½, ½ − r[b, answer])",
        )
    },
    margins="A head that carries more than half of a difference carries most of it; the effect has to be above 0.",
)
_shared, _dissociated = as_v3("a shared store", shared_store), as_v3("one head a skill", dissociated)
_both = table("planted costs", outcome((0.6, 0.7), (0.6, 0.7), (0.6, 0.7)))
_redundant = table("planted costs", outcome((0.1, 0.1), (0.1, 0.1), (0.8, 0.8)))
_CLAIM = of_v3(
    id="T14",
    statement="Removing one head costs elimination and spares recall; removing the other does the reverse.",
    source="tiny-recall, article on the model with repeats",
    quantifier="most",
    margin=0.0,
    unit="accuracy",
    headline=True,
    controls=controls(
        positive=(_dissociated,),
        negative=(_shared, table("costs at the margin", outcome((0.8, MARGIN), (0.0, 0.8), (0.8, 0.8))), UNTRAINED),
    ),
    measure=measure,
    explanation=_EXPLANATION,
    factors={"kind": ("zero", "resample"), "within": ("all sequences",), "metric": ("log_prob",), **OTHER_TRAINING},
)
CLAIM = _CLAIM.against(
    *(
        _CLAIM.rival(
            word,
            statement,
            parts=(most(word, "above", 0.0, "accuracy"),),
            controls=controls(negative=(UNTRAINED,), positive=(planted,)) + controls(negative=(_dissociated,)),
        )
        for word, statement, planted in (
            ("single", "One head serves both skills and the other one of them.", _shared),
            ("both", "Both heads serve both skills.", _both),
            ("redundant", "Either head can stand in for the other one.", _redundant),
        )
    ),
    _CLAIM.rival(
        "carriers",
        "One head carries the values and the other one whether the last x was seen before.",
        quantifier="most",
        margin=0.0,
        unit="share of the logit difference",
        controls=(
            *controls(negative=(UNTRAINED,), positive=(as_v3("store and match", store_and_match),)),
            *controls(negative=(_dissociated,)),
        ),
        measure=roles_by_carrying,
        explanation=_CARRIERS,
        factors={"direction": ("noising",)},
    ),
)
CLAIMS.add(CLAIM.id, CLAIM)
