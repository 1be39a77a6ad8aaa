"""T5 and T8: what the loss reveals about recall.

T5, "16 dimensions and one head, trained on repeats, reach elimination 100 %, recall near 0 % and almost the loss of
v3", is refuted if elimination is at .99 or less, recall at .01 or more, or the losses are .01 nats or more apart,
each on the mixture that both are trained on. Its rival: on repeats the model guesses among the values used before,
and is right in a quarter.

T8, "the loss cannot tell a model that recalls from one that does not", is refuted if the loss of v1 or of d16h1 is
.01 nats or more from that of v3, on sequences without repeats or on the mixture with 30 % repeats. Within one
distribution: the source sets v1 on its own distribution beside v3 on another, which is the rival T8-own. The rival
T8-mixed is that the loss does so on the mixture.

The loss is the cross-entropy in nats, mean over the five slots and over every sequence over unseen mappings; on a
mixture (1 - r) * fresh + r * repeats.

They show what a loss curve can be read for. They do not show how a model answers, and a model that gives a wrong
answer with little confidence loses less than one that is sure of it.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Subject
from mnemoscope.analyses import evaluated, mean_loss
from mnemoscope.judging import Case, Measured, controls, most, table
from mnemoscope.systems.tiny_recall.claim_parts import tiny_recall, units

REPEATS = 0.3
"""Share of repeats in the mixture: what v3 and d16h1 are trained on."""
MARGIN = 0.01
UNITS = units("v1", "d16h1", "v3", recipe="published")
ON_REPEATS = units("d16h1", "v3", recipe="published")
GUESS = 0.25
"""Recall of a guess among the four values used before."""
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
    """T8: how far losses are from v3's on one and the same distribution, and `own`, each on what it is trained on."""
    large = measured["v3"]
    return {
        **{
            f"{name}_{distribution}": abs(measured[name][distribution] - large[distribution])
            for name in ("v1", "d16h1")
            for distribution in ("fresh", "mixed")
        },
        "own": abs(measured["v1"]["fresh"] - large["mixed"]),
    }


def _skills(name: str, *, recall: float, distance: float) -> Case:
    """A planted outcome for T5: d16h1 eliminates; its recall, and its loss above v3's."""
    small = {"elimination": 1.0, "recall": recall, "mixed": FLOOR + distance}
    return table(name, {"d16h1": small, "v3": {"elimination": 1.0, "recall": 1.0, "mixed": FLOOR}})


def _losses(name: str, *, fresh: float, mixed: float) -> Case:
    """A planted outcome for T8: how much more v1 and d16h1 lose than v3."""
    small = {"fresh": FLOOR + fresh, "mixed": FLOOR + mixed}
    return table(name, {"v1": small, "d16h1": small, "v3": {"fresh": FLOOR, "mixed": FLOOR}})


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
_T8 = tiny_recall(
    id="T8",
    statement="On one and the same distribution the loss does not tell a model that recalls from one that does not.",
    source="tiny-recall, presentation and article: loss alone is misleading",
    parts=tuple(most(name, "below", MARGIN, "nats") for name in ("v1_fresh", "v1_mixed", "d16h1_fresh", "d16h1_mixed")),
    units=UNITS,
    measure=measure,
    compare=distances,
    factors={"recipe": ("quick",)},
    controls=controls(
        positive=(_losses("equal losses", fresh=0.002, mixed=0.002),),
        negative=(_losses("a margin apart on repeats", fresh=0.002, mixed=MARGIN),),
    ),
    prompts="enumerated",
)
T8 = _T8.against(
    _T8.rival(
        "mixed",
        "On sequences with repeats the loss tells them apart.",
        source="against tiny-recall",
        parts=tuple(most(name, "above", MARGIN, "nats") for name in ("v1_mixed", "d16h1_mixed")),
        controls=controls(
            positive=(_losses("far apart on repeats", fresh=0.0, mixed=0.1),),
            negative=(_losses("a margin apart on repeats", fresh=0.0, mixed=MARGIN),),
        ),
    ),
    _T8.rival(
        "own",
        "Each on what it is trained on, the losses of v1 and v3 are equal.",
        source="tiny-recall: the two losses stand side by side",
        parts=(most("own", "below", MARGIN, "nats"),),
        controls=controls(
            positive=(_losses("equal losses", fresh=0.002, mixed=0.1),),
            negative=(_losses("a margin apart", fresh=MARGIN, mixed=0.0),),
        ),
    ),
)
for _claim in (T5, T8):
    CLAIMS.add(_claim.id, _claim)
