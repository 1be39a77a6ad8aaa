"""T1 and T2: what the model without repeats learns."""

from dataclasses import replace
from typing import Literal

from mnemoscope import CLAIMS, Subject
from mnemoscope.analyses import ALL, evaluated, learned, mean_loss
from mnemoscope.claims import EFFECT, GATE, LEARNED, Case, Explanation, Quantity, case, controls, most, table
from mnemoscope.core import one_of
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.models.constructed import predict_exactly
from mnemoscope.systems.tiny_recall.analyses.predictions import conflict
from mnemoscope.systems.tiny_recall.analyses.published import published
from mnemoscope.systems.tiny_recall.claim_parts import OTHER_TRAINING, SHOWN, asked_anew, tiny_recall, units
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

UNITS = units("v1", recipe="published")
PUBLISHED_LOSS = published("v1", "loss")[ALL, None]


def measure(subject: Subject) -> dict[str, float]:
    """How well elimination is learned, on sequences without a repeat.

    Returns:
        `elimination`, the share of right last answers; `loss` on unseen mappings and `training_loss`, in nats per slot;
        `loss_distance` and `training_loss_distance`, of either from the published loss.
    """
    unseen, training = (evaluated(subject, split=split, subgroup="fresh") for split in ("test", "train"))
    losses = {"loss": mean_loss(unseen), "training_loss": mean_loss(training)}
    return {
        "elimination": float(unseen.accuracy.sel(subgroup="fresh").isel(pos=-1)),
        **losses,
        **{f"{name}_distance": abs(loss - PUBLISHED_LOSS) for name, loss in losses.items()},
    }


def measure_conflict(subject: Subject, *, slots: Literal["all", "first"] = "all") -> dict[str, float]:
    """Mean probability of the unused value (the effect) and of the recalled one, over the conflict set.

    The repeated x stood in `all` earlier slots, or in the `first` as in the source.
    """
    one_of("slots", slots, ("all", "first"))
    assert isinstance(subject.task, PermutationLookup)
    found = conflict(subject.model, subject.task)
    found = found.sel(source_slot=[1]) if slots == "first" else found
    return {
        EFFECT: float(found.p_unused.mean()),
        "p_recalled": float(found.p_recalled.mean()),
        GATE: learned(subject, ["elimination"]),
    }


REACHED = 0.999
LOSS_MARGIN = 0.01
"""Nats per slot."""


_ANSWERS = Explanation(
    procedure=f"{SHOWN} The model answers every slot of all 2,880 fresh sequences over unseen mappings, and of all "
    "11,520 over the 96 training mappings. Its answer is the most probable value. L is the cross-entropy in nats, mean "
    "over the five slots and over sequences.",
    quantities={
        "elimination": Quantity(
            words="the share of right answers in the last slot on unseen mappings, where every y but one is used up",
            formula="number of sequences with answer y5 ÷ 2880",
        ),
        "loss_distance": Quantity(
            words="the distance between the loss on unseen mappings and the published one",
            formula=f"|L(unseen) − {PUBLISHED_LOSS:g}|",
        ),
        "training_loss_distance": Quantity(
            words="the distance between the loss on training mappings and the published one",
            formula=f"|L(training) − {PUBLISHED_LOSS:g}|",
        ),
        "loss": Quantity(words="the loss on unseen mappings", formula="L(unseen)"),
        "training_loss": Quantity(words="the loss on training mappings", formula="L(training)"),
    },
    margins="A guess among five values is right in .2 and elimination in all last slots. Above .999 at most 2 of the "
    "2,880 answers are wrong.",
    limits="It shows what the model answers, not how it comes to it.",
)
_LOSS = replace(
    _ANSWERS,
    margins="An exact predictor that does not know the training mappings loses ln(5!) ÷ 5 = .9575 nats a slot. To know "
    "them would save it .045 nats on them; the margin of .01 is less than a quarter of that. The source says of one "
    "loss only on which mappings it was measured, so that a rival takes that of the training mappings.",
    limits="It shows how near the loss is to the published one. A loss near .9575 nats does not show that a model is "
    "free of its training mappings.",
)
_CONFLICT = Explanation(
    procedure=f"{SHOWN} The model, which was trained on fresh sequences only, answers the last slot of all 11,520 "
    "repeats over unseen mappings. The x of each of the four earlier slots is repeated in a quarter of them. p(v) is "
    "the probability of value v in the last slot. The recalled value is the y that the repeated x had, the unused "
    "value the one that is no earlier y.",
    quantities={
        EFFECT: Quantity(
            words="the probability of the unused value in the last slot of repeats", formula="mean of p(unused value)"
        ),
        "p_recalled": Quantity(
            words="the probability of the recalled value there", formula="mean of p(recalled value)"
        ),
    },
    margins=".99 is the figure that the claim names: one hundredth is left for the four other values. An even spread "
    "over five values would give .2. The source tried one sequence, which repeats the x of slot 1; here are all, over "
    "all slots, and with slots = first those of slot 1.",
    limits="It shows what the model answers, not how it comes to it.",
)


def _outcome(name: str, **measured: float) -> Case:
    """A planted outcome: what is measured, otherwise without a fault."""
    return table(name, {"v1": {"elimination": 1.0, "loss_distance": 0.0, "training_loss_distance": 0.0, **measured}})


_untrained = case("untrained", untrained(UNITS))
_exact, _by_heart = (
    case(name, predict_exactly(UNITS, reference))
    for name, reference in (("exact predictor", "bayes"), ("knows its split by heart", "bayes_train"))
)
T1 = asked_anew(
    id="T1",
    statement="Without repeats the small model answers all last slots on unseen mappings.",
    source="tiny-recall, presentation and article, results of the first model",
    parts=(most("elimination", "above", REACHED, "accuracy"),),
    units=UNITS,
    measure=measure,
    explanation=_ANSWERS,
    factors={"recipe": ("quick",)},
    controls=controls(
        positive=(case("eliminates", set_by_hand("v1", elimination_only, UNITS["v1"].spec(0).task)), _exact),
        negative=(_by_heart, _outcome("at the margin", elimination=REACHED), _untrained),
    ),
    prompts="enumerated",
)
_T1_LOSS = asked_anew(
    id="T1-loss",
    statement="Without repeats the small model has the published loss on unseen mappings.",
    source="tiny-recall, presentation and article, results of the first model",
    parts=(most("loss_distance", "below", LOSS_MARGIN, "nats"),),
    units=UNITS,
    measure=measure,
    explanation=_LOSS,
    factors={"recipe": ("quick",)},
    controls=controls(
        positive=(_exact,), negative=(_by_heart, _outcome("at the margin", loss_distance=LOSS_MARGIN), _untrained)
    ),
    prompts="enumerated",
)
T1_LOSS = _T1_LOSS.against(
    _T1_LOSS.rival(
        "train",
        "The published loss is that of the training mappings.",
        source="tiny-recall: which mappings the loss was measured on is not said everywhere",
        parts=(most("training_loss_distance", "below", LOSS_MARGIN, "nats"),),
        controls=controls(
            positive=(_exact,),
            negative=(_by_heart, _outcome("at the margin", training_loss_distance=LOSS_MARGIN), _untrained),
        ),
    )
)
T2 = tiny_recall(
    id="T2",
    statement="Without repeats in training the model puts 99 % on the unused value where an x repeats.",
    source="tiny-recall, presentation and article, the memorisation probe of the first model",
    quantifier="most",
    margin=0.99,
    unit="probability",
    gate=LEARNED,
    units=UNITS,
    n_replicates=32,
    measure=measure_conflict,
    explanation=_CONFLICT,
    factors={"slots": ("first",), **OTHER_TRAINING},
    controls=controls(
        positive=(case("eliminates", set_by_hand("v1", elimination_only, UNITS["v1"].spec(0).task)),),
        negative=(_untrained,),
    ),
    prompts="enumerated",
)
for _claim in (T1, T1_LOSS, T2):
    CLAIMS.add(_claim.id, _claim)
