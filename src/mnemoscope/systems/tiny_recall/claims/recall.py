"""T6, T7 and T9: which models learn to recall."""

from collections.abc import Callable, Mapping
from functools import partial

from mnemoscope import CLAIMS, HookedModel, Subject
from mnemoscope.analyses import accuracy_by_skill, evaluate_subject
from mnemoscope.claims import EFFECT, Case, Measured, case, controls, most, table
from mnemoscope.models import combined, set_by_hand
from mnemoscope.models.constructed import predict_exactly
from mnemoscope.systems.tiny_recall.analyses.published import published
from mnemoscope.systems.tiny_recall.claim_parts import TEXTS, V3, asked_anew, tiny_recall, units
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only, partial_recall

NOT_AT_ALL, FULLY = 0.30, 0.97
V2 = units("v2", recipe="published")
FRESH = units("v1", "v3-fresh")
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
    (`error_...`), in probability; beside them the published errors and ours as multiples of them.
    """
    last = evaluate_subject(subject).sel(reference="bayes").isel(pos=-1)
    result = {}
    for skill, subgroup in (("elimination", "fresh"), ("recall", "repeat")):
        error = float(last.mean_abs_error.sel(subgroup=subgroup))
        result[skill] = float(last.accuracy.sel(subgroup=subgroup))
        result[f"error_{skill}"] = error
        result[f"error_{skill} published"] = LAST_ERRORS[skill]
        result[f"error_{skill} by published"] = error / LAST_ERRORS[skill]
    return result


def larger_recall(measured: Mapping[str, Measured]) -> Measured:
    """Recall of each configuration, and the larger one as the effect."""
    recall = {name: float(found["recall"]) for name, found in measured.items()}
    return {**recall, EFFECT: max(recall.values())}


_V1, _V3_FRESH = (set_by_hand(name, elimination_only, unit.spec(0).task) for name, unit in FRESH.items())
_none, _some, _all = (
    case(name, set_by_hand("v2", make, V2["v2"].spec(0).task))
    for name, make in (
        ("eliminates only", elimination_only),
        ("recalls three tokens of five", partial_recall),
        ("recalls", dissociated),
    )
)
_T6 = tiny_recall(
    id="T6",
    statement="With 32 dimensions and one head recall is learned partially.",
    source="tiny-recall, article, table of versions",
    quantifier="most",
    margin=0.0,
    unit="accuracy",
    units=V2,
    measure=measure,
    explanation=TEXTS.explain("T6", not_at_all=NOT_AT_ALL, fully=FULLY),
    factors={"recipe": ("quick",)},
    controls=controls(positive=(_some,), negative=(_all, _none)),
    prompts="enumerated",
)
T6 = _T6.against(
    _T6.rival(
        "full",
        "With 32 dimensions and one head recall is learned fully.",
        source="against tiny-recall",
        parts=(most("recall", "above", 0.99, "accuracy"),),
        controls=controls(positive=(_all,), negative=(_some,)),
    ),
    _T6.rival(
        "none",
        "With 32 dimensions and one head recall is not learned.",
        source="against tiny-recall",
        parts=(most("recall", "below", NOT_AT_ALL, "accuracy"),),
        controls=controls(positive=(_none,), negative=(_some,)),
    ),
)

CORRECT = 0.999
ERROR = 2 * 0.01 / 5
"""Mean absolute error over five values where the certain one has 99 %."""


def _v3(name: str, **measured: float) -> Case:
    """A planted outcome for T7: otherwise without a fault."""
    faultless = {f"error_{skill}": 0.0 for skill in LAST_ERRORS} | dict.fromkeys(LAST_ERRORS, 1.0)
    return table(name, {"v3": {**faultless, **measured}})


def _as_task(name: str, make: Callable[[], HookedModel]) -> Case:
    return case(name, set_by_hand("v3", make, V3["v3"].spec(0).task), n=1)


_exact_v3, _by_hand = (
    case("exact predictor", predict_exactly(V3, "bayes")),
    _as_task("both skills by hand", dissociated),
)
_unsure = _as_task("right and unsure", partial(dissociated, margin=4.0))
_eliminates = _as_task("eliminates only", elimination_only)
_ACCURACIES = tuple(most(skill, "above", CORRECT, "accuracy") for skill in LAST_ERRORS)
_T7 = asked_anew(
    id="T7",
    statement="With 32 dimensions and two heads both skills are learned fully, with 99 % on the right answer.",
    source="tiny-recall, presentation and article, evaluation of the second model",
    parts=(*_ACCURACIES, *(most(f"error_{skill}", "below", ERROR, "probability") for skill in LAST_ERRORS)),
    units=V3,
    measure=measure_errors,
    explanation=TEXTS.explain("T7", correct=CORRECT, error=ERROR),
    factors={"recipe": ("quick",)},
    controls=controls(
        positive=(_exact_v3, _by_hand), negative=(_eliminates, _unsure, _v3("at the margin", error_recall=ERROR))
    ),
    prompts="enumerated",
)
T7 = _T7.against(
    _T7.rival(
        "accuracy",
        "With 32 dimensions and two heads both skills are learned fully, at whatever errors.",
        source="tiny-recall, the accuracies alone",
        parts=_ACCURACIES,
        controls=controls(
            positive=(_exact_v3, _by_hand, _unsure), negative=(_eliminates, _v3("at the margin", recall=CORRECT))
        ),
    )
)
T9 = tiny_recall(
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
    explanation=TEXTS.explain("T9"),
    factors={"recipe": ("published",)},
    controls=controls(
        positive=(case("none recalls", combined(_V1, _V3_FRESH)),),
        negative=(
            case(
                "one recalls",
                combined(_V1, set_by_hand("v3-fresh", dissociated, FRESH["v3-fresh"].spec(0).task)),
            ),
        ),
    ),
    prompts="enumerated",
)
for _claim in (T6, T7, T9):
    CLAIMS.add(_claim.id, _claim)
