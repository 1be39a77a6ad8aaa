"""T6, T7 and T9: which models learn to recall.

T6, "32 dimensions and one head, on repeats, learn recall partially", is refuted if recall is .30 or less (a guess
among the values used before is right in .25) or .97 or more. The effect is min(recall - .30, .97 - recall). Rivals:
fully, not at all.

T7, "32 dimensions and two heads learn elimination and recall to 100 %, within the published errors", is refuted if
one of the two is at .999 or less, or if the mean absolute error to the posterior at the last slot, on fresh sequences
or on repeats, is 1.5 times the published one or more. Its rival keeps the accuracies only.

T9, "without repeats in training recall is never learned", is refuted by one model, of v1's size or of v3's, that was
trained without repeats and recalls a tenth of the time or more. The effect is the larger recall of the two.

Measured on every sequence over unseen mappings; recall is the share of right last answers on repeats. They show what
is learned under these recipes and not why, nor that another recipe could not do it.
"""

from collections.abc import Mapping
from functools import partial

from mnemoscope import CLAIMS, Claim, Configuration, Criterion, Subject
from mnemoscope.analyses import accuracy_by_skill, evaluated
from mnemoscope.judging import EFFECT, Measured
from mnemoscope.models import planted
from mnemoscope.models.constructed import predicting
from mnemoscope.systems.tiny_recall.analyses.published import published
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only, partial_recall
from mnemoscope.systems.tiny_recall.controls import negative, positive, together

NOT_AT_ALL, FULLY = 0.30, 0.97
V2 = {"v2": Configuration(preset="v2", recipe="published")}
V3 = {"v3": Configuration(preset="v3", recipe="published")}
FRESH = {name: Configuration(preset=name) for name in ("v1", "v3-fresh")}
LAST_ERRORS = {
    skill: published("v3", "mean_abs_error")[subgroup, 5]
    for skill, subgroup in (("elimination", "fresh"), ("recall", "repeat"))
}
"""Published mean absolute errors at the last slot."""


def measure(subject: Subject) -> dict[str, float]:
    """Accuracy of `elimination` and of `recall`, 0 to 1, and as the effect how far recall lies inside "partially"."""
    skills = accuracy_by_skill(subject)
    return {**skills, EFFECT: min(skills["recall"] - NOT_AT_ALL, FULLY - skills["recall"])}


def measure_errors(subject: Subject) -> dict[str, float]:
    """Accuracy of `elimination` and of `recall`, 0 to 1, and for each the mean absolute error to the posterior
    (`error_...`) as a multiple of the published one.
    """
    last = evaluated(subject).sel(reference="bayes").isel(pos=-1)
    result = {}
    for skill, subgroup in (("elimination", "fresh"), ("recall", "repeat")):
        result[skill] = float(last.accuracy.sel(subgroup=subgroup))
        result[f"error_{skill}"] = float(last.mean_abs_error.sel(subgroup=subgroup)) / LAST_ERRORS[skill]
    return result


def larger_recall(measured: Mapping[str, Measured]) -> Measured:
    """Recall of each configuration, and the larger one as the effect."""
    recall = {name: float(found["recall"]) for name, found in measured.items()}
    return {**recall, EFFECT: max(recall.values())}


_ELIMINATE = {
    name: planted(name, elimination_only, configuration.spec(0).task) for name, configuration in FRESH.items()
}
_NONE_RECALLS = together(_ELIMINATE["v1"], _ELIMINATE["v3-fresh"])
_ONE_RECALLS = together(_ELIMINATE["v1"], planted("v3-fresh", dissociated, FRESH["v3-fresh"].spec(0).task))
_ACCURACY = partial(Criterion, quantifier="most", unit="accuracy")

_V2_TASK = V2["v2"].spec(0).task
_NONE, _SOME, _ALL = (planted("v2", make, _V2_TASK) for make in (elimination_only, partial_recall, dissociated))
_T6 = Claim(
    id="T6",
    system="tiny-recall",
    statement="With 32 dimensions and one head recall is learned partially.",
    source="tiny-recall, article, table of versions",
    quantifier="most",
    margin=0.0,
    unit="accuracy",
    units=V2,
    measure=measure,
    factors={"recipe": ("quick",)},
    controls=(
        positive("recalls three tokens of five", _SOME),
        negative("recalls", _ALL),
        negative("eliminates only", _NONE),
    ),
    prompts="enumerated",
)
T6 = _T6.against(
    *(
        _T6.rival(
            word,
            f"With 32 dimensions and one head recall is {what}.",
            source="against tiny-recall",
            parts=(criterion,),
            controls=(control, negative("recalls three tokens of five", _SOME)),
        )
        for word, what, criterion, control in (
            ("full", "learned fully", _ACCURACY(name="recall", margin=0.99), positive("recalls", _ALL)),
            (
                "none",
                "not learned",
                _ACCURACY(name="recall", margin=NOT_AT_ALL, direction="below"),
                positive("eliminates only", _NONE),
            ),
        )
    )
)

_ACCURACIES = (_ACCURACY(name="elimination", margin=0.999), _ACCURACY(name="recall", margin=0.999))
_ERROR = partial(Criterion, quantifier="most", margin=1.5, direction="below", unit="times the published error")
_T7_CONTROLS = (
    positive("exact predictor", predicting(V3, "bayes")),
    negative("eliminates only", planted("v3", elimination_only, V3["v3"].spec(0).task)),
)
_T7 = Claim(
    id="T7",
    system="tiny-recall",
    statement="With 32 dimensions and two heads both skills are learned fully, within the published errors.",
    source="tiny-recall, presentation and article, evaluation of the second model",
    parts=(*_ACCURACIES, _ERROR(name="error_elimination"), _ERROR(name="error_recall")),
    units=V3,
    n_replicates=32,
    headline=True,
    measure=measure_errors,
    factors={"recipe": ("quick",), "model.normalization": ("none",)},
    controls=_T7_CONTROLS,
    prompts="enumerated",
)
T7 = _T7.against(
    _T7.rival(
        "accuracy",
        "With 32 dimensions and two heads both skills are learned fully, at whatever errors.",
        source="tiny-recall, the accuracies alone",
        parts=_ACCURACIES,
        controls=_T7_CONTROLS,
    )
)
T9 = Claim(
    id="T9",
    system="tiny-recall",
    statement="Without repeats in training recall is not learned, whatever the size.",
    source="tiny-recall, article, findings: no repeats, no signal towards recall",
    quantifier="every",
    margin=0.1,
    direction="below",
    unit="accuracy",
    units=FRESH,
    measure=measure,
    compare=larger_recall,
    controls=(positive("none recalls", _NONE_RECALLS), negative("one recalls", _ONE_RECALLS)),
    prompts="enumerated",
)
for _claim in (T6, T7, T9):
    CLAIMS.add(_claim.id, _claim)
