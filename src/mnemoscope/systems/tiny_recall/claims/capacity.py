"""T18 and T19: what size decides."""

from collections.abc import Mapping
from functools import partial

from mnemoscope import CLAIMS, Subject
from mnemoscope.analyses import every_sequence, log_probs
from mnemoscope.claims import Case, Measured, case, controls, most, table
from mnemoscope.core import metrics
from mnemoscope.models import combined, set_by_hand, untrained
from mnemoscope.models.constructed import predict_exactly
from mnemoscope.systems.tiny_recall.claim_parts import TEXTS, asked_anew, tiny_recall, units
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

REACHED = 0.99
BY_HEART = (1 / 4 + 1) / 2
"""Accuracy on unseen mappings below which a model with four values is nearer to chance than to eliminating."""
WIDTHS = units("d4", "d8", "d12", "v1")
VALUES = units("v3-4-values", "v3-fresh")


def elimination(subject: Subject, *, split: str = "test") -> float:
    """Share of right last answers among all sequences without a repeat over the mappings of a split."""
    batch = every_sequence(subject.task, split)
    batch = batch.select(subject.task.subgroups(batch)["fresh"])
    right = metrics.is_correct(log_probs(subject.model, subject.task, batch), batch.targets)
    return float(right[:, -1].double().mean())


def measure(subject: Subject) -> dict[str, float]:
    """Accuracy on `unseen` mappings, 0 to 1."""
    return {"unseen": elimination(subject)}


def measure_both(subject: Subject) -> dict[str, float]:
    """Accuracy on `unseen` mappings and on those of `training`, 0 to 1."""
    return {**measure(subject), "training": elimination(subject, split="train")}


def by_width(measured: Mapping[str, Measured]) -> Measured:
    """Accuracy on unseen mappings by width."""
    return {"d16" if name == "v1" else name: found["unseen"] for name, found in measured.items()}


def by_values(measured: Mapping[str, Measured]) -> Measured:
    """Accuracy with `four` and with `five` values on unseen mappings, and the same on training mappings."""
    words = {"four": measured["v3-4-values"], "five": measured["v3-fresh"]}
    unseen = {word: found["unseen"] for word, found in words.items()}
    return unseen | {f"{word} in training": found["training"] for word, found in words.items()}


def _widths(name: str, *reached: str, at: float = 1.0, others: float) -> Case:
    """A planted outcome: accuracy `at` for the widths in `reached`, `others` for the rest."""
    return table(name, {width: {"unseen": at if width in reached else others} for width in WIDTHS})


_FIVE = set_by_hand("v3-fresh", elimination_only, PermutationLookup())
_FOUR = set_by_hand("v3-4-values", partial(elimination_only, 4), PermutationLookup(n_values=4))
_by_heart = case(
    "by heart with four values",
    combined(predict_exactly({"v3-4-values": VALUES["v3-4-values"]}, "bayes_train"), _FIVE),
)
"""A predictor that knows the training mappings by heart at V = 4, and a model that eliminates at V = 5."""
_generalises = case("eliminates at any size", combined(_FOUR, _FIVE))
"""Models that eliminate with four and with five values."""


def _values(name: str, *, four: float, training: float = 1.0) -> Case:
    """A planted outcome: accuracy with four values on unseen and on training mappings; with five it generalises."""
    five = {"unseen": 1.0, "training": 1.0}
    return table(name, {"v3-4-values": {"unseen": four, "training": training}, "v3-fresh": five})


_no_width, _no_values = (case("untrained", untrained(of)) for of in (WIDTHS, VALUES))
_AGAINST = "tiny-recall, against the article on the model without repeats"

_T18 = tiny_recall(
    id="T18",
    statement="Width 16 barely suffices for elimination: it reaches 99 % on unseen mappings, and width 12 does not.",
    source="tiny-recall, article on the model without repeats",
    parts=(most("d16", "above", REACHED, "accuracy"), most("d12", "below", REACHED, "accuracy")),
    units=WIDTHS,
    measure=measure,
    compare=by_width,
    explanation=TEXTS.explain("T18", reached=REACHED),
    factors={"recipe": ("published",)},
    controls=controls(
        positive=(_widths("only d 16 reaches it", "v1", others=0.9),),
        negative=(
            _widths("d 12 at the margin", "d12", at=REACHED, others=1.0),
            _widths("d 12 suffices", "v1", "d12", others=0.5),
            _no_width,
        ),
    ),
    prompts="enumerated",
)
T18 = _T18.against(
    *(
        _T18.rival(
            width,
            f"{width.replace('d', 'd ')} suffices for elimination.",
            source=_AGAINST,
            parts=(most(width, "above", REACHED, "accuracy"),),
            controls=controls(
                positive=(_widths("reached", width, others=0.0),),
                negative=(_widths("at the margin", width, at=REACHED, others=1.0), _no_width),
            ),
        )
        for width in ("d12", "d8", "d4")
    )
)
_T19 = asked_anew(
    id="T19",
    statement="With four values the model learns the mappings by heart, with five it generalises to unseen ones.",
    source="tiny-recall, article on the model without repeats",
    parts=(
        most("four in training", "above", REACHED, "accuracy"),
        most("four", "below", BY_HEART, "accuracy"),
        most("five", "above", REACHED, "accuracy"),
    ),
    units=VALUES,
    measure=measure_both,
    compare=by_values,
    explanation=TEXTS.explain("T19", reached=REACHED),
    controls=controls(
        positive=(_by_heart,),
        negative=(
            _generalises,
            _values("four values at the margin", four=BY_HEART),
            _values("nothing learned with four values", four=0.25, training=0.25),
            _no_values,
        ),
    ),
    prompts="enumerated",
)
T19 = _T19.against(
    _T19.rival(
        "generalises",
        "With four values the model generalises to unseen mappings as well.",
        source=_AGAINST,
        parts=(most("four", "above", REACHED, "accuracy"),),
        controls=controls(
            positive=(_generalises,),
            negative=(_by_heart, _values("four values at the margin", four=REACHED), _no_values),
        ),
    )
)
for _claim in (T18, T19):
    CLAIMS.add(_claim.id, _claim)
