"""T1 and T2: what the model without repeats learns.

T1, "v1 reaches elimination 100 % on unseen mappings", is refuted if in most seeds it is wrong in a thousandth of the
last slots or more (3 of 2,880). T1-loss, "at a loss of about .959", is refuted if in most seeds its loss there lies .01
nats or more from that. The source states for one loss only on which mappings it was measured; the rival T1-loss-train
takes that of the training mappings. The margin is less than a quarter of what knowing the training mappings is worth
to an exact predictor (.045 nats of ln(5!) / 5 = .9575).

T2, "where an x repeats, v1 still answers with the unused value", is refuted if that value gets .99 or less of the
probability on the conflict set. The source tried one sequence, which repeats the x of slot 1; here are all, over all
slots.

Measured on every sequence over unseen (T1-loss-train: training) mappings: share of right last answers; cross-entropy,
mean over the five slots; mean probability of the unused value.

They show what the model answers, not how it comes to it; a loss near the floor of .9575 nats does not show that a
model is free of its training mappings.
"""

from typing import Literal

from mnemoscope import CLAIMS, Subject
from mnemoscope.analyses import ALL, LEARNED, evaluated, learned, mean_loss
from mnemoscope.core import one_of
from mnemoscope.judging import EFFECT, GATE, Case, case, controls, most, table
from mnemoscope.models import planted, untrained
from mnemoscope.models.constructed import predicting
from mnemoscope.systems.tiny_recall.analyses.predictions import conflict
from mnemoscope.systems.tiny_recall.analyses.published import published
from mnemoscope.systems.tiny_recall.claim_parts import OTHER_TRAINING, asked_anew, tiny_recall, units
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

    Args:
        subject: The model.
        slots: Whether the repeated x stood in `all` earlier slots, or in the `first` as in the source.

    Raises:
        InputError: `slots` is neither.
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


def _outcome(name: str, **measured: float) -> Case:
    """A planted outcome: what is measured, otherwise without a fault."""
    return table(name, {"v1": {"elimination": 1.0, "loss_distance": 0.0, "training_loss_distance": 0.0, **measured}})


_untrained = case("untrained", untrained(UNITS))
_exact, _by_heart = (
    case(name, predicting(UNITS, reference))
    for name, reference in (("exact predictor", "bayes"), ("knows its split by heart", "bayes_train"))
)
T1 = asked_anew(
    id="T1",
    statement="Without repeats the small model answers all last slots on unseen mappings.",
    source="tiny-recall, presentation and article, results of the first model",
    parts=(most("elimination", "above", REACHED, "accuracy"),),
    units=UNITS,
    measure=measure,
    factors={"recipe": ("quick",)},
    controls=controls(
        positive=(case("eliminates", planted("v1", elimination_only, UNITS["v1"].spec(0).task)), _exact),
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
    factors={"slots": ("first",), **OTHER_TRAINING},
    controls=controls(
        positive=(case("eliminates", planted("v1", elimination_only, UNITS["v1"].spec(0).task)),),
        negative=(_untrained,),
    ),
    prompts="enumerated",
)
for _claim in (T1, T1_LOSS, T2):
    CLAIMS.add(_claim.id, _claim)
