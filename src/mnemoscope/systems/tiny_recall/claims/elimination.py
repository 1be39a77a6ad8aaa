"""T1 and T2: what the model without repeats learns.

T1, "v1 reaches elimination 100 % on unseen mappings, at a loss of about .959", is refuted if it answers the last slot
less often, or if its loss lies .01 nats or more from the published one. The source states for one loss only on which
mappings it was measured; the rival T1-train takes that of the training mappings.

T2, "where an x repeats, v1 still answers with the unused value", is refuted if that value gets .99 or less of the
probability on the conflict set. The source tried one sequence, which repeats the x of slot 1; here are all, over all
slots.

Measured on every sequence over unseen (T1-train: training) mappings: share of right last answers; cross-entropy, mean
over the five slots; mean probability of the unused value.

T1 and T2 show what the model answers, not how it comes to it; a loss near the floor of ln(5!) / 5 = .9575 nats does
not show that a model is free of its training mappings.
"""

from typing import Literal

from mnemoscope import CLAIMS, Subject
from mnemoscope.analyses import ALL, LEARNED, evaluated, learned, mean_loss
from mnemoscope.core import one_of
from mnemoscope.judging import EFFECT, GATE, case, controls, most
from mnemoscope.models import planted, untrained
from mnemoscope.models.constructed import predicting
from mnemoscope.systems.tiny_recall.analyses.predictions import conflict
from mnemoscope.systems.tiny_recall.analyses.published import published
from mnemoscope.systems.tiny_recall.claim_parts import OTHER_TRAINING, tiny_recall, units
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


_ELIMINATION = most("elimination", "above", 0.999, "accuracy")
_untrained = case("untrained", untrained(UNITS))
_T1 = tiny_recall(
    id="T1",
    statement="Without repeats the small model answers all last slots on unseen mappings, at the published loss.",
    source="tiny-recall, presentation and article, results of the first model",
    parts=(_ELIMINATION, most("loss_distance", "below", 0.01, "nats")),
    units=UNITS,
    n_replicates=32,
    headline=True,
    measure=measure,
    factors=OTHER_TRAINING,
    controls=controls(positive=(case("exact predictor", predicting(UNITS, "bayes")),), negative=(_untrained,)),
    prompts="enumerated",
)
T1 = _T1.against(
    _T1.rival(
        "train",
        "The published loss is that of the training mappings.",
        source="tiny-recall: which mappings the loss was measured on is not said everywhere",
        parts=(_ELIMINATION, most("training_loss_distance", "below", 0.01, "nats")),
        controls=_T1.controls,
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
for _claim in (T1, T2):
    CLAIMS.add(_claim.id, _claim)
