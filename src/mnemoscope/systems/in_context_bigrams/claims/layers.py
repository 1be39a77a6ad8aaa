"""B1 and B2: what one layer and two layers make of outputs that must be read from the context.

The triggers are the same five tokens in every sequence, for both depths.
"""

from collections.abc import Mapping

import torch

from mnemoscope import CLAIMS, Configuration, HookedModel, Subject
from mnemoscope.claims import Case, Measured, case, controls, most, table
from mnemoscope.core import one_of
from mnemoscope.models import combined, set_by_hand, untrained
from mnemoscope.models.constructed import bigram_table
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import accuracy_by_class, prompts
from mnemoscope.systems.in_context_bigrams.claim_parts import FIXED_TRIGGERS, TEXTS, any_token, birth

SOURCE = "Bietti et al. 2023, Birth of a Transformer, as presented"
N_SEQUENCES = 512
PUBLISHED = 0.55
"""Accuracy of one layer."""
ONE, TWO = "birth-1-layer", "birth-fixed"
ONE_LAYER = {ONE: Configuration(preset=ONE)}
DEPTHS = {name: Configuration(preset=name) for name in (ONE, TWO)}


def measure(subject: Subject, *, loops: bool = True, positions: str = "in_context") -> dict[str, float]:
    """Accuracy (0 to 1) on fresh sequences, and how far it is from the published one of one layer (`distance`).

    `from_loops` is how much less it is without loops. With `loops` a trigger may be its own output in the sequences of
    `accuracy` and `distance`; `positions` is the class that counts, one of `position_classes`.
    """
    by_loops = {}
    for allowed in (True, False):
        found = accuracy_by_class(subject.model, prompts(subject.task, subject.seed, N_SEQUENCES, loops=allowed))
        one_of("positions", positions, found)
        by_loops[allowed] = found[positions]
    accuracy = by_loops[loops]
    return {
        "accuracy": accuracy,
        "distance": abs(accuracy - PUBLISHED),
        "from_loops": by_loops[True] - by_loops[False],
    }


def by_depth(measured: Mapping[str, Measured]) -> Measured:
    """Accuracy of `two_layers` and of `one_layer`, and what the second layer is worth (`depth`)."""
    one, two = (measured[name]["accuracy"] for name in (ONE, TWO))
    return {"two_layers": two, "one_layer": one, "depth": two - one}


def says_it_again() -> HookedModel:
    """A model that always names the current token: right in loops, and else almost never."""
    return bigram_table(torch.eye(FIXED_TRIGGERS.d_vocab), FIXED_TRIGGERS.n_ctx)


def _one(name: str, *, accuracy: float, from_loops: float = 0.2) -> Case:
    """A planted outcome for one layer."""
    return table(name, {ONE: {"accuracy": accuracy, "distance": abs(accuracy - PUBLISHED), "from_loops": from_loops}})


def _both(name: str, *, one: float, two: float) -> Case:
    """A planted outcome for both depths."""
    return table(name, {ONE: {"accuracy": one}, TWO: {"accuracy": two}})


_AGAIN, _READS, _DEEP = (
    set_by_hand(unit, make, FIXED_TRIGGERS) for unit, make in ((ONE, says_it_again), (ONE, any_token), (TWO, any_token))
)
_ONE_READS = case("reads the context", _READS)
_UNTRAINED = case("untrained", untrained(ONE_LAYER))
_ONLY_TWO, _NEITHER = combined(_AGAIN, _DEEP), case("untrained", untrained(DEPTHS))
_TWO_READ = case("two layers read the context", _ONLY_TWO)
_FACTORS = {"loops": (False,), "positions": ("second", "later"), "recipe": ("long",)}

_B1 = birth(
    id="B1",
    statement="One layer fails: it gets about 55 % of in-context outputs right.",
    source=SOURCE,
    measure=measure,
    explanation=TEXTS.explain("B1", n_sequences=N_SEQUENCES, published=PUBLISHED),
    units=ONE_LAYER,
    parts=(most("distance", "below", 0.1, "accuracy"),),
    factors=_FACTORS,
    controls=controls(
        positive=(_one("near 55 %", accuracy=0.6),),
        negative=(_one("a margin off", accuracy=0.65), _ONE_READS, _UNTRAINED),
    ),
)
B1 = _B1.against(
    _B1.rival(
        "loops",
        "Of that accuracy more than ten points come from triggers that are their own output.",
        source=f"against {SOURCE}",
        parts=(most("from_loops", "above", 0.1, "accuracy"),),
        controls=controls(
            positive=(case("says it again", _AGAIN),),
            negative=(_ONE_READS, _one("a margin from loops", accuracy=0.6, from_loops=0.1)),
        ),
    ),
    _B1.rival(
        "chance",
        "One layer gets less than 30 % of in-context outputs right.",
        source=f"against {SOURCE}",
        parts=(most("accuracy", "below", 0.3, "accuracy"),),
        controls=controls(positive=(_UNTRAINED,), negative=(_ONE_READS, _one("at the margin", accuracy=0.3))),
    ),
)
_B2 = birth(
    id="B2",
    statement="Two layers succeed: they get about 99 % of in-context outputs right.",
    source=SOURCE,
    measure=measure,
    explanation=TEXTS.explain("B2", n_sequences=N_SEQUENCES, published=PUBLISHED),
    units=DEPTHS,
    compare=by_depth,
    parts=(most("two_layers", "above", 0.98, "accuracy"),),
    factors=_FACTORS,
    controls=controls(positive=(_TWO_READ,), negative=(_both("at the margin", one=0.55, two=0.98), _NEITHER)),
)
B2 = _B2.against(
    _B2.rival(
        "nearly",
        "Two layers get over 90 % of in-context outputs right, and possibly no more.",
        source=f"against {SOURCE}",
        parts=(most("two_layers", "above", 0.9, "accuracy"),),
        controls=controls(positive=(_TWO_READ,), negative=(_both("at the margin", one=0.55, two=0.9), _NEITHER)),
    ),
    _B2.rival(
        "depth",
        "The second layer is worth more than 25 points.",
        source=f"{SOURCE}: the two accuracies stand side by side",
        parts=(most("depth", "above", 0.25, "accuracy"),),
        controls=controls(
            positive=(case("only two layers read the context", _ONLY_TWO),),
            negative=(
                case("both read the context", combined(_READS, _DEEP)),
                _both("a margin apart", one=0.7, two=0.95),
            ),
        ),
    ),
)
for _claim in (B1, B2):
    CLAIMS.add(_claim.id, _claim)
