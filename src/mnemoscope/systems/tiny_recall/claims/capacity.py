"""T18 and T19: what size decides.

T18, "d 16 barely suffices for elimination", is refuted if width 16 does not reach 99 % on unseen mappings, or if width
12 does. Rivals: a smaller width suffices. The source's count of the dimensions that are needed (6 + 3 + 8 = 17) would
leave no room for them.

T19, "with four values the model learns the mappings by heart (there are 24, fewer than it has dimensions), with five it
cannot", is refuted if at V = 4 it answers unseen mappings too, or at V = 5 it does not. Rival: it generalises with four
values as well.

Measured is the accuracy of elimination: share of right last answers among all sequences without a repeat over unseen
mappings; for T19 also over training mappings, beside.

They show what training finds under this recipe. That a width never gets there does not show that no weights of that
width would; and a model that fails on unseen mappings has learned by heart only if it answers those of training.
"""

from collections.abc import Mapping
from functools import partial

from mnemoscope import CLAIMS, Claim, Configuration, Control, Criterion, Subject
from mnemoscope.analyses import every_sequence, log_probs
from mnemoscope.core import metrics
from mnemoscope.judging import Measured
from mnemoscope.models import planted, untrained
from mnemoscope.models.constructed import predicting
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

REACHED = 0.99
NOT_GENERALISED = 0.9
WIDTHS = {
    **{name: Configuration(preset=name) for name in ("d4", "d8", "d12")},
    "v1": Configuration(preset="v1"),
}
VALUES = {name: Configuration(preset=name) for name in ("v3-4-values", "v3")}


def elimination(subject: Subject, *, split: str = "test") -> float:
    """Share of right last answers among all sequences without a repeat over the mappings of a split.

    Raises:
        InputError: The model is too small for the task.
    """
    batch = every_sequence(subject.task, split)
    batch = batch.select(subject.task.subgroups(batch)["fresh"])
    right = metrics.correct(log_probs(subject.model, subject.task, batch), batch.targets)
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
    words = {"four": measured["v3-4-values"], "five": measured["v3"]}
    unseen = {word: found["unseen"] for word, found in words.items()}
    return unseen | {f"{word} in training": found["training"] for word, found in words.items()}


def _widths(case: int, *, reached: tuple[str, ...], at: float, others: float) -> dict[str, dict[str, float]]:
    """A table of outcomes: accuracy `at` for the widths that are to reach it, `others` for the rest."""
    return {name: {"unseen": at if name in reached else others} for name in WIDTHS}


def _values(case: int, *, four: float, five: float) -> dict[str, dict[str, float]]:
    """A table of outcomes; everything in training is right."""
    return {name: {"unseen": right, "training": 1.0} for name, right in (("v3-4-values", four), ("v3", five))}


def _by_heart(case: int) -> dict[str, Subject]:
    """A predictor that knows the training mappings by heart at V = 4, and a model that eliminates at V = 5."""
    four = {"v3-4-values": VALUES["v3-4-values"]}
    return {**predicting(four, "bayes_train")(case), **planted("v3", elimination_only, PermutationLookup())(case)}


def _generalises(case: int) -> dict[str, Subject]:
    """Models that eliminate with four and with five values."""
    four = planted("v3-4-values", partial(elimination_only, 4), PermutationLookup(n_values=4))
    return {**four(case), **planted("v3", elimination_only, PermutationLookup())(case)}


def _narrower(width: str) -> Claim:
    """The rival that a smaller width suffices."""
    return Claim(
        id=f"T18-{width}",
        system="tiny-recall",
        statement=f"{width.replace('d', 'd ')} suffices for elimination.",
        source="tiny-recall, against the article on the model without repeats",
        parts=(Criterion(name=width, quantifier="most", margin=REACHED, unit="accuracy"),),
        units=WIDTHS,
        measure=measure,
        compare=by_width,
        controls=(
            Control(name="reached", kind="positive", plant=partial(_widths, reached=(width,), at=1.0, others=0.0), n=1),
            Control(
                name="at the margin",
                kind="negative",
                plant=partial(_widths, reached=(width,), at=REACHED, others=1.0),
                n=1,
            ),
            Control(name="untrained", kind="negative", plant=untrained(WIDTHS)),
        ),
        prompts="enumerated",
    )


T18 = Claim(
    id="T18",
    system="tiny-recall",
    statement="Width 16 barely suffices for elimination: it reaches 99 % on unseen mappings, and width 12 does not.",
    source="tiny-recall, article on the model without repeats",
    parts=(
        Criterion(name="d16", quantifier="most", margin=REACHED, unit="accuracy"),
        Criterion(name="d12", quantifier="most", margin=REACHED, direction="below", unit="accuracy"),
    ),
    units=WIDTHS,
    measure=measure,
    compare=by_width,
    rivals=tuple(_narrower(width) for width in ("d12", "d8", "d4")),
    controls=(
        Control(
            name="only d 16 reaches it",
            kind="positive",
            plant=partial(_widths, reached=("v1",), at=1.0, others=0.9),
            n=1,
        ),
        Control(
            name="d 12 at the margin",
            kind="negative",
            plant=partial(_widths, reached=("d12",), at=REACHED, others=1.0),
            n=1,
        ),
        Control(
            name="d 12 suffices",
            kind="negative",
            plant=partial(_widths, reached=("v1", "d12"), at=1.0, others=0.5),
            n=1,
        ),
        Control(name="untrained", kind="negative", plant=untrained(WIDTHS)),
    ),
    prompts="enumerated",
)
T19 = Claim(
    id="T19",
    system="tiny-recall",
    statement="With four values the model learns the mappings by heart, with five it generalises to unseen ones.",
    source="tiny-recall, article on the model without repeats",
    parts=(
        Criterion(name="four", quantifier="most", margin=NOT_GENERALISED, direction="below", unit="accuracy"),
        Criterion(name="five", quantifier="most", margin=REACHED, unit="accuracy"),
    ),
    units=VALUES,
    measure=measure_both,
    compare=by_values,
    rivals=(
        Claim(
            id="T19-generalises",
            system="tiny-recall",
            statement="With four values the model generalises to unseen mappings as well.",
            source="tiny-recall, against the article on the model without repeats",
            parts=(Criterion(name="four", quantifier="most", margin=REACHED, unit="accuracy"),),
            units=VALUES,
            measure=measure_both,
            compare=by_values,
            controls=(
                Control(name="eliminates at any size", kind="positive", plant=_generalises),
                Control(name="by heart with four values", kind="negative", plant=_by_heart),
                Control(name="untrained", kind="negative", plant=untrained(VALUES)),
            ),
            prompts="enumerated",
        ),
    ),
    controls=(
        Control(name="by heart with four values", kind="positive", plant=_by_heart),
        Control(name="eliminates at any size", kind="negative", plant=_generalises),
        Control(
            name="four values at the margin",
            kind="negative",
            plant=partial(_values, four=NOT_GENERALISED, five=1.0),
            n=1,
        ),
        Control(name="untrained", kind="negative", plant=untrained(VALUES)),
    ),
    prompts="enumerated",
)
for _claim in (T18, T19):
    CLAIMS.add(_claim.id, _claim)
