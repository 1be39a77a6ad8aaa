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

from mnemoscope import CLAIMS, Claim, Configuration, Control, Criterion, Subject
from mnemoscope.analyses import accuracy_by_skill, evaluated
from mnemoscope.judging import EFFECT, Measured
from mnemoscope.models import planted
from mnemoscope.models.constructed import predicting
from mnemoscope.systems.tiny_recall.analyses.published import published
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only
from mnemoscope.systems.tiny_recall.constructed.partial_recall import partial_recall

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


def _one_recalls(case: int) -> dict[str, Subject]:
    """A model that eliminates, and one that recalls too."""
    return {
        **planted("v1", elimination_only, FRESH["v1"].spec(0).task)(case),
        **planted("v3-fresh", dissociated, FRESH["v3-fresh"].spec(0).task)(case),
    }


def _none_recalls(case: int) -> dict[str, Subject]:
    """Models that eliminate."""
    return {
        name: each
        for unit, config in FRESH.items()
        for name, each in planted(unit, elimination_only, config.spec(0).task)(case).items()
    }


_claim = partial(Claim, system="tiny-recall", prompts="enumerated")
_ACCURACY = partial(Criterion, quantifier="most", unit="accuracy")

_V2_TASK = V2["v2"].spec(0).task
_NONE, _SOME, _ALL = (planted("v2", make, _V2_TASK) for make in (elimination_only, partial_recall, dissociated))
_t6 = partial(_claim, units=V2, measure=measure)
T6 = _t6(
    id="T6",
    statement="With 32 dimensions and one head recall is learned partially.",
    source="tiny-recall, article, table of versions",
    quantifier="most",
    margin=0.0,
    unit="accuracy",
    factors={"recipe": ("quick",)},
    controls=(
        Control(name="recalls three tokens of five", kind="positive", plant=_SOME),
        Control(name="recalls", kind="negative", plant=_ALL),
        Control(name="eliminates only", kind="negative", plant=_NONE),
    ),
    rivals=(
        _t6(
            id="T6-full",
            statement="With 32 dimensions and one head recall is learned fully.",
            source="against tiny-recall",
            parts=(_ACCURACY(name="recall", margin=0.99),),
            controls=(
                Control(name="recalls", kind="positive", plant=_ALL),
                Control(name="recalls three tokens of five", kind="negative", plant=_SOME),
            ),
        ),
        _t6(
            id="T6-none",
            statement="With 32 dimensions and one head recall is not learned.",
            source="against tiny-recall",
            parts=(_ACCURACY(name="recall", margin=NOT_AT_ALL, direction="below"),),
            controls=(
                Control(name="eliminates only", kind="positive", plant=_NONE),
                Control(name="recalls three tokens of five", kind="negative", plant=_SOME),
            ),
        ),
    ),
)

_ACCURACIES = (_ACCURACY(name="elimination", margin=0.999), _ACCURACY(name="recall", margin=0.999))
_ERROR = partial(Criterion, quantifier="most", margin=1.5, direction="below", unit="times the published error")
_t7 = partial(
    _claim,
    units=V3,
    measure=measure_errors,
    n_replicates=32,
    controls=(
        Control(name="exact predictor", kind="positive", plant=predicting(V3, "bayes")),
        Control(name="eliminates only", kind="negative", plant=planted("v3", elimination_only, V3["v3"].spec(0).task)),
    ),
)
T7 = _t7(
    id="T7",
    statement="With 32 dimensions and two heads both skills are learned fully, within the published errors.",
    source="tiny-recall, presentation and article, evaluation of the second model",
    parts=(*_ACCURACIES, _ERROR(name="error_elimination"), _ERROR(name="error_recall")),
    headline=True,
    factors={"recipe": ("quick",), "model.normalization": ("none",)},
    rivals=(
        _t7(
            id="T7-accuracy",
            statement="With 32 dimensions and two heads both skills are learned fully, at whatever errors.",
            source="tiny-recall, the accuracies alone",
            parts=_ACCURACIES,
        ),
    ),
)
T9 = _claim(
    id="T9",
    statement="Without repeats in training recall is not learned, whatever the size.",
    source="tiny-recall, article, findings: no repeats, no signal towards recall",
    quantifier="every",
    margin=0.1,
    direction="below",
    unit="accuracy",
    units=FRESH,
    measure=measure,
    compare=larger_recall,
    controls=(
        Control(name="none recalls", kind="positive", plant=_none_recalls),
        Control(name="one recalls", kind="negative", plant=_one_recalls),
    ),
)
CLAIMS.add(T6.id, T6)
CLAIMS.add(T7.id, T7)
CLAIMS.add(T9.id, T9)
