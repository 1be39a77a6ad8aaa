"""T23: the heads specialise only if the data requires it; v3's size trained without repeats does not."""

from collections.abc import Callable, Mapping
from typing import Literal

from mnemoscope import CLAIMS, HookedModel, InputError, Subject
from mnemoscope.analyses import accuracy_by_skill
from mnemoscope.claims import GATE, LEARNED, Measured, case, controls, most, table
from mnemoscope.core import one_of
from mnemoscope.models import ControlMaker, combined, set_by_hand, untrained
from mnemoscope.systems.tiny_recall.analyses.carriers import patching_recovery
from mnemoscope.systems.tiny_recall.analyses.removal_costs import ablation_effect, all_heads, skills_without
from mnemoscope.systems.tiny_recall.claim_parts import REPEATS, TEXTS, tiny_recall, units
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only, twin_elimination
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

HALF = 0.5
UNITS = units("v3", "v3-fresh")
_SKILL = "elimination"
_TRAINED = {"v3": (_SKILL, "recall"), "v3-fresh": (_SKILL,)}


def measure(subject: Subject, *, by: Literal["carried", "removal"] = "carried") -> dict[str, float]:
    """The inequality of two heads in elimination (`index`), and the accuracy of every skill.

    It is that of what they carry, or of what their removal costs.
    """
    one_of("by", by, ("carried", "removal"))
    heads = all_heads(subject.model)
    if len(heads) != 2:
        raise InputError(f"the model must have two heads in all, to compare them; got {len(heads)}; take v3's size")
    if by == "carried":
        first, second = patching_recovery(subject, kind="exchange_answer", skills=(_SKILL,))
    else:
        without = skills_without(subject, {str(head): (head,) for head in heads}, skills=(_SKILL,))
        first, second = ablation_effect(without).sel(skill=_SKILL).to_numpy()
    return {"index": abs(float(first - second)), **accuracy_by_skill(subject)}


def compare(measured: Mapping[str, Measured]) -> dict[str, float]:
    """The index with and without repeats in training, and the worst accuracy of what either is trained for."""
    learned = [float(measured[unit][skill]) for unit, skills in _TRAINED.items() for skill in skills]
    return {
        GATE: min(learned),
        "with_repeats": float(measured["v3"]["index"]),
        "without": float(measured["v3-fresh"]["index"]),
    }


def outcome(with_repeats: float, without: float) -> dict[str, Measured]:
    """A planted outcome: two indices, of models that have learned everything."""
    learned = {_SKILL: 1.0, "recall": 1.0}
    return {"v3": {"index": with_repeats, **learned}, "v3-fresh": {"index": without, **learned}}


def models(fresh: Callable[[], HookedModel]) -> ControlMaker:
    """A model that eliminates by one head beside recall, and `fresh` as trained without repeats."""
    return combined(set_by_hand("v3", dissociated, REPEATS), set_by_hand("v3-fresh", fresh, PermutationLookup()))


_specialised = case("two heads without repeats", models(twin_elimination), n=1)
_always = case("one head whatever the data", models(elimination_only), n=1)
_untrained = case("untrained", untrained(UNITS))
_CLAIM = tiny_recall(
    id="T23",
    statement="One head eliminates alone if the data has repeats, and the heads share it equally if it has none.",
    source="tiny-recall, article on the model with repeats",
    parts=(most("with_repeats", "above", HALF, "share"), most("without", "below", HALF, "share")),
    gate=LEARNED,
    units=UNITS,
    controls=controls(
        positive=(_specialised,),
        negative=(_always, table("an index of margin size", outcome(1.0, HALF)), _untrained),
    ),
    measure=measure,
    compare=compare,
    explanation=TEXTS.explain("T23"),
    factors={"by": ("removal",), "recipe": ("published",)},
)
CLAIM = _CLAIM.against(
    _CLAIM.rival(
        "always",
        "One head eliminates alone without repeats in the data as well.",
        parts=(most("without", "above", HALF, "share"),),
        controls=controls(positive=(_always,), negative=(_specialised, _untrained)),
    )
)
CLAIMS.add(CLAIM.id, CLAIM)
