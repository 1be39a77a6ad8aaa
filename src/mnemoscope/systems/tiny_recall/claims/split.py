"""T14: elimination and recall are split across the two heads, so that each can be removed without the other skill.

The effects are the margins of `dissociation_margins`: `double` is the claim's, the others are its rivals'.
"""

import numpy as np
import xarray as xr

from mnemoscope import CLAIMS, InputError, Subject
from mnemoscope.analyses import dissociation_margins, lowest_skill_accuracy
from mnemoscope.claims import EFFECT, GATE, Measured, controls, most, table
from mnemoscope.core import Replacement, memoize
from mnemoscope.systems.tiny_recall.analyses.carriers import roles_by_carrying
from mnemoscope.systems.tiny_recall.analyses.removal_costs import (
    Loss,
    Within,
    ablation_effect,
    all_heads,
    skills_without,
)
from mnemoscope.systems.tiny_recall.claim_parts import OTHER_TRAINING, TEXTS, UNTRAINED, as_v3, of_v3
from mnemoscope.systems.tiny_recall.constructed import dissociated, shared_store, store_and_match

MARGIN = 0.25
_SKILLS = ("elimination", "recall")
_JOINT = "both heads"


def measure(
    subject: Subject,
    *,
    kind: Replacement = "mean",
    within: Within = "is_repeat",
    metric: Loss = "accuracy",
    needed: float = MARGIN,
    draw: int = 0,
) -> dict[str, float]:
    """The effects of the claim and of its rivals, in units of the metric, and the costs that they come from.

    The model has two heads; `within` says where means and resampled activations come from. The metric `log_prob` is the
    geometric mean of the answer's probability. A skill needs a head whose removal costs more than `needed`. `draw`
    numbers the draws of sequences.
    """
    without = _without_heads(subject, kind, within, draw)
    cost = ablation_effect(without, metric=metric)
    return {
        GATE: lowest_skill_accuracy(subject),
        **_effects(cost.drop_sel(component=_JOINT), cost.sel(component=_JOINT), needed),
        **{f"{h} {s}": float(cost.sel(component=h, skill=s)) for h in cost.component.to_numpy() for s in _SKILLS},
    }


@memoize
def _without_heads(subject: Subject, kind: Replacement, within: Within, draw: int) -> xr.Dataset:
    """Both skills without each head and without both."""
    heads = all_heads(subject.model)
    if len(heads) != 2:
        raise InputError(f"the model must have two heads in all, for one skill each; got {len(heads)}; take v3's size")
    targets = {str(head): (head,) for head in heads} | {_JOINT: heads}
    return skills_without(subject, targets, kind=kind, within=within, skills=_SKILLS, draw=draw)


def _effects(cost: xr.DataArray, joint: xr.DataArray, needed: float = MARGIN) -> dict[str, float]:
    """The effects of the claim and of its rivals; over (component, skill), and over skill."""
    found = dissociation_margins(cost, joint, margin=needed)
    return {EFFECT: found.pop("double"), **found}


def outcome(*costs: tuple[float, float]) -> dict[str, Measured]:
    """Planted costs: rows are the first head, the second head, and both; columns elimination and recall."""
    cost = xr.DataArray(np.array(costs), dims=("component", "skill"), coords={"skill": list(_SKILLS)})
    return {"v3": {GATE: 1.0, **_effects(cost[:2], cost[2])}}


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
    explanation=TEXTS.explain("T14", margin=MARGIN),
    factors={"kind": ("zero", "resample"), "within": ("all sequences",), "metric": ("log_prob",), **OTHER_TRAINING},
    choices={"needed": (MARGIN / 2, 2 * MARGIN), "draw": (1,)},
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
        explanation=TEXTS.explain("T14-carriers"),
        factors={"direction": ("noising",)},
    ),
)
CLAIMS.add(CLAIM.id, CLAIM)
