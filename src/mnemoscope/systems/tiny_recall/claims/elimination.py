"""T1 and T2: what the model without repeats learns."""

from typing import Literal

from mnemoscope import CLAIMS, Subject
from mnemoscope.analyses import ALL_SEQUENCES, evaluate_subject, lowest_skill_accuracy, mean_loss
from mnemoscope.claims import EFFECT, GATE, LEARNED, Case, case, controls, most, table
from mnemoscope.core import one_of
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.models.constructed import predict_exactly
from mnemoscope.systems.tiny_recall.analyses.predictions import conflict
from mnemoscope.systems.tiny_recall.analyses.published import published
from mnemoscope.systems.tiny_recall.claim_parts import OTHER_TRAINING, TEXTS, asked_anew, tiny_recall, units
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

UNITS = units("v1", recipe="published")
PUBLISHED_LOSS = published("v1", "loss")[ALL_SEQUENCES, None]


def measure(subject: Subject) -> dict[str, float]:
    """Measure how well elimination is learned, on sequences without a repeat.

    Returns:
        `elimination`, the share of right last answers; `loss` on unseen mappings and `training_loss`, in nats per slot;
        `loss_distance` and `training_loss_distance`, of either from the published loss.
    """
    unseen, training = (evaluate_subject(subject, split=split, subgroup="fresh") for split in ("test", "train"))
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
        GATE: lowest_skill_accuracy(subject, ["elimination"]),
    }


REACHED = 0.999
LOSS_MARGIN = 0.01
"""Nats per slot."""


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
    explanation=TEXTS.explain("T1", published_loss=PUBLISHED_LOSS, reached=REACHED),
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
    explanation=TEXTS.explain("T1-loss", published_loss=PUBLISHED_LOSS, loss_margin=LOSS_MARGIN),
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
    explanation=TEXTS.explain("T2"),
    factors={"slots": ("first",), **OTHER_TRAINING},
    controls=controls(
        positive=(case("eliminates", set_by_hand("v1", elimination_only, UNITS["v1"].spec(0).task)),),
        negative=(_untrained,),
    ),
    prompts="enumerated",
)
for _claim in (T1, T1_LOSS, T2):
    CLAIMS.add(_claim.id, _claim)
