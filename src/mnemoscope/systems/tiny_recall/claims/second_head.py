"""T15: it is the second head that makes recall possible, "a qualitative leap, not just more capacity".

How long one trains may decide as much as heads do, so that the published recipe is a factor of T15. No model is set
aside: whether recall is learned is the question.
"""

from collections.abc import Mapping
from functools import partial

from mnemoscope import CLAIMS, Claim, Control, Subject
from mnemoscope.analyses import accuracy_by_skill
from mnemoscope.claims import EFFECT, Measured, case, controls, most, table
from mnemoscope.models import combined, set_by_hand, untrained
from mnemoscope.systems.tiny_recall.claim_parts import GUESS, RECALLS, TEXTS, asked_anew, units
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

_SOURCE = "tiny-recall, article on the model with repeats"
_TASK = PermutationLookup(repeat_ratio=0.3)
WIDE = units("d64h1")
Controls = tuple[Control, ...]


def measure(subject: Subject) -> dict[str, float]:
    """Accuracy of `recall` and of `elimination` on unseen mappings, from 0 to 1."""
    return dict(accuracy_by_skill(subject))


def compare(one: str, two: str, measured: Mapping[str, Measured]) -> dict[str, float]:
    """The sides of "recalls" on which configurations with `one` and with `two` heads lie, and both accuracies."""
    recall = {"one_head": float(measured[one]["recall"]), "two_heads": float(measured[two]["recall"])}
    return {EFFECT: min(recall["two_heads"] - RECALLS, RECALLS - recall["one_head"]), **recall}


_LIMITS = (
    "It shows what training finds with this recipe. It does not show what an architecture could express, nor what a "
    "second head does."
)


def _of_width(id: str, width: int, one: str, two: str, factors: Mapping[str, tuple[str, ...]]) -> Claim:
    """The claim about one width: whether `two` recalls where `one` does not."""
    by_hand = case(
        "two heads recall by hand",
        combined(set_by_hand(one, elimination_only, _TASK), set_by_hand(two, dissociated, _TASK)),
        n=1,
    )
    neither, guesses, both, margin = (
        table(name, {one: {"recall": one_head}, two: {"recall": two_heads}})
        for name, one_head, two_heads in (
            ("neither recalls", GUESS, GUESS),
            ("one head guesses", GUESS, 1.0),
            ("both recall", 1.0, 1.0),
            ("at the margin", RECALLS, RECALLS),
        )
    )
    claim = asked_anew(
        id=id,
        statement=f"At width {width} a model with two heads recalls and one with a single head does not.",
        source=_SOURCE,
        quantifier="most",
        margin=0.0,
        unit="accuracy",
        units=units(one, two),
        measure=measure,
        compare=partial(compare, one, two),
        explanation=TEXTS.explain(id),
        factors=factors,
        controls=controls(
            positive=(by_hand, guesses),
            negative=(neither, both, margin, case("untrained", untrained(units(one, two)))),
        ),
        prompts="enumerated",
    )
    return _with_rivals(
        claim,
        width,
        one_head=controls(positive=(both,), negative=(by_hand, margin)),
        neither=controls(positive=(neither,), negative=(by_hand, margin)),
    )


def _with_rivals(claim: Claim, width: int, *, one_head: Controls, neither: Controls) -> Claim:
    """The claim about one width beside: one head suffices; two heads do not."""
    return claim.against(
        claim.rival(
            "one-head",
            f"At width {width} one head suffices.",
            source=f"against {_SOURCE}",
            parts=(most("one_head", "above", RECALLS, "accuracy"),),
            controls=one_head,
        ),
        claim.rival(
            "not-enough",
            f"At width {width} two heads do not recall either.",
            source=f"against {_SOURCE}",
            parts=(most("two_heads", "below", RECALLS, "accuracy"),),
            controls=neither,
        ),
    )


def _wide() -> Claim:
    """The claim about capacity without a second head."""
    recalls, eliminates = (
        case(name, set_by_hand("d64h1", make, _TASK), n=1)
        for name, make in (("recalls by hand", dissociated), ("eliminates only", elimination_only))
    )
    margin = table("at the margin", {"d64h1": {"recall": RECALLS}})
    claim = asked_anew(
        id="T15-wide",
        statement="At twice the width of v3 a single head does not recall: it is not just more capacity.",
        source=_SOURCE,
        parts=(most("recall", "below", RECALLS, "accuracy"),),
        units=WIDE,
        measure=measure,
        explanation=TEXTS.explain("T15-wide"),
        controls=controls(positive=(eliminates,), negative=(recalls, margin)),
        prompts="enumerated",
    )
    return claim.against(
        claim.rival(
            "capacity",
            "Capacity makes recall possible: a single head recalls if the model is wide.",
            source=f"against {_SOURCE}",
            parts=(most("recall", "above", RECALLS, "accuracy"),),
            controls=controls(positive=(recalls,), negative=(eliminates, margin)),
        )
    )


T15 = _of_width("T15", 32, "v2", "v3", {"recipe": ("published",)})
T15_NARROW = _of_width("T15-narrow", 16, "d16h1", "d16h2", {})
T15_WIDE = _wide()
for _claim in (T15, T15_NARROW, T15_WIDE):
    CLAIMS.add(_claim.id, _claim)
