"""E7: with finitely many chains four algorithms compete, by their number and by step.

Retrieval weighs the chains of training, inference knows none; each works from unigrams or from bigrams. They differ on
new chains: a model that retrieves predicts as if the chain were one of those that it knows.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile

from mnemoscope import CLAIMS, Subject
from mnemoscope.claims import Case, Measured, controls, most
from mnemoscope.models.constructed import Course, step_course
from mnemoscope.systems.markov.analyses.course import nearest, tracked
from mnemoscope.systems.markov.claim_parts import COMPETITION, TEXTS, followed, markov_claim, units

FEW, MANY = "markov-chains-4", "markov-chains-256"
UNITS = units(FEW, MANY)
ALGORITHMS = ("unigram", "unigram_retrieval", "bigram", "bigram_retrieval")
_NATS, _YES = "nats", "1: yes"


def measure(subject: Subject) -> dict[str, float]:
    """At the end: by how much bigram retrieval is nearer than inference on new chains, and bigrams than unigrams on
    known ones; over training: whether a unigram algorithm is nearest on known chains before any bigram one is.
    """
    names = ("uniform", *ALGORITHMS)
    new = tracked(subject.trajectory, *(f"kl_{name}" for name in ALGORITHMS)).isel(step=-1)
    known = tracked(subject.trajectory, *(f"known_kl_{name}" for name in ALGORITHMS)).isel(step=-1)
    least = {n: min(float(known[f"known_kl_{n}gram{way}"]) for way in ("", "_retrieval")) for n in ("uni", "bi")}
    closest = nearest(subject.trajectory, names, prefix="known_kl_")
    before = list(takewhile(lambda name: not name.startswith("bigram"), closest))
    return {
        "retrieves": float(new.kl_bigram - new.kl_bigram_retrieval),
        "bigrams": least["uni"] - least["bi"],
        "unigram_first": float(any(name.startswith("unigram") for name in before) and len(before) < len(closest)),
    }


def compared(measured: Mapping[str, Measured]) -> Measured:
    """The numbers with few chains (`few_…`) and with many (`many_…`)."""
    places = {"few": measured[FEW], "many": measured[MANY]}
    return {f"{place}_{name}": value for place, found in places.items() for name, value in found.items()}


def _courses(*, step: float, retrieves: bool, first: Sequence[str] = ("unigram",)) -> dict[str, Course]:
    """From uniform to the algorithms in `first`, and at a step to bigram retrieval or inference."""
    end = "bigram_retrieval" if retrieves else "bigram"
    nears = {name: (0.02 if name in first else 0.1, 0.02 if name == end else 0.1) for name in ALGORITHMS}
    return {
        f"{split}{name}": step_course(step, low=low, high=high)
        for split in ("kl_", "known_kl_")
        for name, (low, high) in {**nears, "uniform": (0.05, 0.2)}.items()
    }


def _trained(name: str, *, few: dict[str, Course], many: dict[str, Course]) -> Case:
    return followed(name, {FEW: few, MANY: many})


_CLAIMED = _trained(
    "few retrieved, many inferred", few=_courses(step=300, retrieves=True), many=_courses(step=500, retrieves=False)
)
_INFERRED = _trained("all inferred", few=_courses(step=300, retrieves=False), many=_courses(step=500, retrieves=False))
_RETRIEVED = _trained("all retrieved", few=_courses(step=300, retrieves=True), many=_courses(step=500, retrieves=True))
_AT_ONCE = _trained(
    "no unigram phase",
    few=_courses(step=300, retrieves=True, first=("bigram_retrieval",)),
    many=_courses(step=500, retrieves=False, first=("bigram",)),
)
_E7 = markov_claim(
    id="E7",
    statement="Few chains are retrieved and many inferred, and unigram algorithms come before bigram ones.",
    source=COMPETITION,
    units=UNITS,
    measure=measure,
    compare=compared,
    explanation=TEXTS.explain("E7"),
    develops=False,
    parts=(
        most("few_retrieves", "above", 0.0, _NATS),
        most("many_retrieves", "below", 0.0, _NATS),
        most("few_bigrams", "above", 0.0, _NATS),
        most("many_bigrams", "above", 0.0, _NATS),
        most("many_unigram_first", "above", 0.5, _YES),
    ),
    factors={"recipe": ("published",)},
    controls=controls(positive=(_CLAIMED,), negative=(_INFERRED, _RETRIEVED, _AT_ONCE)),
)
E7 = _E7.against(
    _E7.rival(
        "inference",
        "Models infer whatever the number of chains.",
        parts=(most("few_retrieves", "below", 0.0, _NATS), most("many_retrieves", "below", 0.0, _NATS)),
        controls=controls(positive=(_INFERRED,), negative=(_CLAIMED, _RETRIEVED)),
    ),
)
CLAIMS.add(E7.id, E7)
