"""T5 and T8: what the loss reveals about recall."""

import math
from collections.abc import Mapping
from dataclasses import replace

from mnemoscope import CLAIMS, Claim, Gate, Subject
from mnemoscope.analyses import evaluate_subject, mean_loss
from mnemoscope.claims import GATE, Case, Measured, case, controls, most, table
from mnemoscope.models import combined, set_by_hand
from mnemoscope.systems.tiny_recall.claim_parts import GUESS, RECALLS, TEXTS, asked_of_more, tiny_recall, units
from mnemoscope.systems.tiny_recall.constructed import dissociated, partial_recall

REPEATS = 0.3
"""Share of repeats in the mixture: what v3 and d16h1 are trained on."""
MARGIN = 0.01
ONE_BIT = REPEATS * math.log(2) / 5
"""Nats per slot on the mixture, if half of the probability is missing from the answer to every repeat."""
UNITS = units("d16h1", "v3")
ON_REPEATS = units("d16h1", "v3", recipe="published")
LEARNED = 0.99
FLOOR = 0.9575
"""Of the loss without knowledge of the mappings, in the planted tables."""


def measure(subject: Subject) -> dict[str, float]:
    """Loss on sequences without a repeat (`fresh`), with one (`repeat`) and on the mixture (`mixed`), in nats per slot,
    and accuracy of `elimination` and of `recall`, 0 to 1.
    """
    found = evaluate_subject(subject)
    fresh, repeat = mean_loss(found, "fresh"), mean_loss(found, "repeat")
    last = found.accuracy.isel(pos=-1)
    return {
        "fresh": fresh,
        "repeat": repeat,
        "mixed": (1 - REPEATS) * fresh + REPEATS * repeat,
        "elimination": float(last.sel(subgroup="fresh")),
        "recall": float(last.sel(subgroup="repeat")),
    }


def small_on_repeats(measured: Mapping[str, Measured]) -> Measured:
    """T5: skills of d16h1, how far its loss is from v3's, and how far its recall is from a guess."""
    small, large = measured["d16h1"], measured["v3"]
    return {
        "elimination": small["elimination"],
        "recall": small["recall"],
        "loss_distance": abs(small["mixed"] - large["mixed"]),
        "guess": abs(small["recall"] - GUESS),
        "loss_d16h1": small["mixed"],
        "loss_v3": large["mixed"],
    }


def distances(measured: Mapping[str, Measured]) -> Measured:
    """T8: how far the two losses are apart on each distribution; losses and recall beside.

    The gate is above 0 where v3 recalls, d16h1 is nearer to a guess, and both eliminate.
    """
    small, large = measured["d16h1"], measured["v3"]
    learned = min(small["elimination"], large["elimination"], large["recall"]) - LEARNED
    return {
        GATE: min(learned, RECALLS - small["recall"]),
        **{name: abs(small[name] - large[name]) for name in ("fresh", "mixed")},
        **{f"{unit} {name}": of[name] for unit, of in measured.items() for name in ("fresh", "mixed", "recall")},
    }


def _skills(name: str, *, recall: float, distance: float) -> Case:
    """A planted outcome for T5: d16h1 eliminates; its recall, and its loss above v3's."""
    small = {"elimination": 1.0, "recall": recall, "mixed": FLOOR + distance}
    return table(name, {"d16h1": small, "v3": {"elimination": 1.0, "recall": 1.0, "mixed": FLOOR}})


def _losses(name: str, *, fresh: float = 0.0, mixed: float = 0.0, recall: float = GUESS) -> Case:
    """A planted outcome for T8: how much more d16h1 loses than v3, and its recall."""
    small = {"elimination": 1.0, "recall": recall, "fresh": FLOOR + fresh, "mixed": FLOOR + mixed}
    return table(name, {"d16h1": small, "v3": {"elimination": 1.0, "recall": 1.0, "fresh": FLOOR, "mixed": FLOOR}})


_guesses = _skills("guesses", recall=GUESS, distance=0.002)
_no_recall = _skills("no recall", recall=0.0, distance=0.002)
_T5 = tiny_recall(
    id="T5",
    statement="With 16 dimensions and one head repeats teach elimination and no recall, at almost the loss of v3.",
    source="tiny-recall, article, table of configurations",
    parts=(
        most("elimination", "above", 0.99, "accuracy"),
        most("recall", "below", 0.01, "accuracy"),
        most("loss_distance", "below", MARGIN, "nats"),
    ),
    units=ON_REPEATS,
    measure=measure,
    compare=small_on_repeats,
    explanation=TEXTS.explain("T5", margin=MARGIN),
    factors={"recipe": ("quick",)},
    controls=controls(
        positive=(_no_recall,), negative=(_guesses, _skills("losses a margin apart", recall=0.0, distance=MARGIN))
    ),
    prompts="enumerated",
)
T5 = _T5.against(
    _T5.rival(
        "guess",
        "On repeats the small model guesses among the values used before.",
        source="against tiny-recall",
        parts=(most("guess", "below", 0.1, "accuracy"),),
        controls=controls(positive=(_guesses,), negative=(_no_recall,)),
    )
)
_MIXED = UNITS["v3"].spec(0).task
_three_of_five = case(
    "recalls three tokens of five",
    combined(set_by_hand("v3", dissociated, _MIXED), set_by_hand("d16h1", partial_recall, _MIXED)),
)
"""By hand; sure wrong answers to the other two cost 10 logits each, and nothing on fresh sequences."""
_half = _losses("recalls half, one of two for the rest", mixed=ONE_BIT / 2, recall=0.5)
_fresh_apart = _losses("far apart without repeats", fresh=2 * ONE_BIT)


def _asked_of(word: str, distribution: str, where: str, alike: Case, apart: Case) -> Claim:
    """T8 of one distribution, with its rival."""
    part = most(distribution, "below", ONE_BIT, "nats")
    margin = _losses("at the margin", **{distribution: ONE_BIT})
    claim = asked_of_more(
        id=f"T8{word}",
        statement=f"{where} the loss does not tell a model that recalls from one that does not.",
        source="tiny-recall, presentation and article: loss alone is misleading",
        parts=(part,),
        gate=Gate(statement="eliminates, while v3 recalls and d16h1 is nearer to a guess", at_least=0.0),
        units=UNITS,
        measure=measure,
        compare=distances,
        explanation=TEXTS.explain(f"T8{word}"),
        controls=controls(positive=(alike,), negative=(margin, apart)),
        prompts="enumerated",
    )
    tells = claim.rival(
        "tells",
        f"{where} the loss tells them apart.",
        source="against tiny-recall",
        parts=(replace(part, direction="above"),),
        controls=controls(positive=(apart,), negative=(margin, alike)),
    )
    return claim.against(tells)


T8 = _asked_of("", "mixed", "On sequences with repeats as in training", _half, _three_of_five)
T8_FRESH = _asked_of("-fresh", "fresh", "On sequences without repeats", _three_of_five, _fresh_apart)
for _claim in (T5, T8, T8_FRESH):
    CLAIMS.add(_claim.id, _claim)
