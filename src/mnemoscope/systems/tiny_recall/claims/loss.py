"""T5 and T8: what the loss reveals about recall."""

import math
from collections.abc import Mapping
from dataclasses import replace

from mnemoscope import CLAIMS, Claim, Gate, Subject
from mnemoscope.analyses import evaluated, mean_loss
from mnemoscope.claims import GATE, Case, Explanation, Measured, Quantity, case, controls, most, table
from mnemoscope.models import combined, set_by_hand
from mnemoscope.systems.tiny_recall.claim_parts import GUESS, RECALLS, SHOWN, asked_of_more, tiny_recall, units
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
    found = evaluated(subject)
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


_TWO_MODELS = (
    f"{SHOWN} d16h1 (16 dimensions, one head) and v3 (32, two heads) were trained on the same data, 30 % of it "
    "repeats. Both answer all 2,880 fresh sequences and all 11,520 repeats over unseen mappings. L is the "
    "cross-entropy in nats, mean over the five slots and over sequences; on the mixture it is .7 × L(fresh) + .3 × "
    "L(repeats)."
)
_T5_WORDS = Explanation(
    procedure=_TWO_MODELS,
    quantities={
        "elimination": Quantity(words="the accuracy of d16h1 in the last slot of fresh sequences"),
        "recall": Quantity(words="the accuracy of d16h1 in the last slot of repeats"),
        "loss_distance": Quantity(
            words="the distance between the losses of d16h1 and v3 on the mixture",
            formula="|L(d16h1, mixture) − L(v3, mixture)|",
        ),
        "guess": Quantity(
            words="the distance between recall and a guess among the four values used before",
            formula="|recall − ¼|",
        ),
        "loss_d16h1": Quantity(words="the loss of d16h1 on the mixture"),
        "loss_v3": Quantity(words="the loss of v3 on the mixture"),
    },
    margins="Published are an elimination of 1, a recall of .0001, and losses of .959 and .956: the claim allows a "
    "hundredth of the answers to be otherwise, and the losses to lie .01 nats apart, about a hundredth of either. A "
    "guess among the values used before recalls .25, one among all values .2; the rival asks for .15 to .35.",
    limits="It shows what the loss of the small model can be read for. It does not show how the model answers.",
)
_T8_WORDS = Explanation(
    procedure=f"{_TWO_MODELS} A seed is judged where the two models differ in recall alone.",
    quantities={
        "mixed": Quantity(
            words="the distance between the two losses on the mixture with 30 % repeats",
            formula="|L(d16h1, mixture) − L(v3, mixture)|",
        ),
        "fresh": Quantity(
            words="the distance between the two losses on fresh sequences", formula="|L(d16h1, fresh) − L(v3, fresh)|"
        ),
        GATE: Quantity(
            words="how far the four accuracies that it asks for are on their side, the least of them",
            formula="min(elimination(d16h1) − .99, elimination(v3) − .99, recall(v3) − .99, .625 − recall(d16h1))",
        ),
        **{
            f"{unit} {on}": Quantity(words=f"the loss of {unit} on {where}")
            for unit in UNITS
            for on, where in (("fresh", "fresh sequences"), ("mixed", "the mixture"))
        },
    },
    margins="The margin is .3 × ln 2 ÷ 5 = .0416 nats. An exact guess among the four values used before costs twice "
    "that on the mixture. It is also the least that wrong answers to all repeats cost there: a model that is right in "
    "a share r of them loses at least 1 − r times as much. In the gate .625 is half way from such a guess (¼) to "
    "always.",
    limits="It shows whether the loss tells these two models apart. On the mixture it cannot fail to, unless d16h1 "
    "recalls some repeats or errs less elsewhere; on fresh sequences the outcome is open. A wrong answer that is given "
    "with little confidence costs less than one that is sure, so that the loss does not say how a model answers.",
)


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
    explanation=_T5_WORDS,
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
        gate=Gate(
            statement="differ in recall alone: both eliminate, v3 recalls, d16h1 is nearer to a guess", at_least=0.0
        ),
        units=UNITS,
        measure=measure,
        compare=distances,
        explanation=_T8_WORDS,
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
