"""P13 and P14: a uniform head of rank one writes the running mean, and neurons make its sign of it."""

from collections.abc import Callable
from functools import partial

from mnemoscope import CLAIMS, Gate, HookedModel, Subject
from mnemoscope.claims import GATE, Case, case, controls, most, table
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.puzzles.analyses.running_sum import (
    N_SEQUENCES,
    Removed,
    accuracy,
    mean_or_sum,
    without_neurons,
)
from mnemoscope.systems.puzzles.claim_parts import TEXTS, puzzle_claim, units
from mnemoscope.systems.puzzles.constructed.running_sum import TASK, counting_model, direct_model, mean_model

UNITS = units("running-sum")
TELLS = 0.95
EVEN, RANK, MEAN = 0.1, 0.95, 0.95
ZERO, ONE_SIGN, SIGNS = 0.5, 0.9, 0.75
SOURCE = "ARENA, monthly algorithmic problem: cumulative sum"


def averaging(subject: Subject) -> dict[str, float]:
    """The parts of P13, and the accuracy."""
    return {**mean_or_sum(subject), GATE: accuracy(subject)}


def silenced(subject: Subject, *, removed: Removed = "post") -> dict[str, float]:
    """The parts of P14, and the accuracy."""
    return {**without_neurons(subject, removed=removed), GATE: accuracy(subject)}


def _built(name: str, make: Callable[[], HookedModel]) -> Case:
    return case(name, set_by_hand("running-sum", make, TASK), n=1)


_MEAN, _COUNTS = _built("the mean, by two neurons", mean_model), _built("counts of values", counting_model)
# All singular values of its head are equal, so that the first direction is arbitrary.
_ANY_DIRECTION = partial(_COUNTS, elsewhere=1.0)
_DIRECT, _UNTRAINED = _built("the mean, without neurons", direct_model), case("untrained", untrained(UNITS))
_SUM = table(
    "the sum", {"running-sum": {"uneven": 0.0, "rank": 1.0, "mean": 0.44, "sum": 1.0, "advantage": -0.56, GATE: 1.0}}
)
_of_sums = partial(
    puzzle_claim,
    source=SOURCE,
    units=UNITS,
    gate=Gate(statement="gives 95 % of the sums of each sign right", at_least=TELLS),
    prompts="own",
)
_CORRELATION, _ANSWERS = "squared correlation", "share of the answers"
_P13 = _of_sums(
    id="P13",
    statement="Attention is uniform, OV has rank one, and along its direction the head writes the running mean.",
    measure=averaging,
    explanation=TEXTS.explain("P13", n=N_SEQUENCES, even=EVEN, rank=RANK, mean=MEAN),
    factors={"recipe": ("published",)},
    parts=(
        most("uneven", "below", EVEN, "distance"),
        most("rank", "above", RANK, "share of the variance"),
        most("mean", "above", MEAN, _CORRELATION),
        most("advantage", "above", 0.0, _CORRELATION),
    ),
    controls=controls(positive=(_MEAN, _DIRECT), negative=(_ANY_DIRECTION, _SUM, _UNTRAINED)),
)
P13 = _P13.against(
    _P13.rival(
        "sum",
        "It writes the running sum.",
        parts=(most("sum", "above", MEAN, _CORRELATION), most("advantage", "below", 0.0, _CORRELATION)),
        controls=controls(positive=(_SUM,), negative=(_MEAN, _DIRECT, _ANY_DIRECTION, _UNTRAINED)),
    ),
)
_P14 = _of_sums(
    id="P14",
    statement="Without its neurons the model says zero, and each neuron speaks for one sign.",
    measure=silenced,
    explanation=TEXTS.explain("P14", n=N_SEQUENCES, zero=ZERO, one_sign=ONE_SIGN, signs=SIGNS),
    factors={"removed": ("mlp_out",), "recipe": ("published",)},
    parts=(
        most("zero", "above", ZERO, _ANSWERS),
        most("one_sign", "above", ONE_SIGN, "share of the activity"),
    ),
    controls=controls(positive=(_MEAN, _COUNTS), negative=(_DIRECT, _UNTRAINED)),
)
P14 = _P14.against(
    _P14.rival(
        "direct",
        "Without its neurons the model still tells most signs, straight from what the head writes.",
        parts=(most("signs", "above", SIGNS, _ANSWERS),),
        controls=controls(positive=(_DIRECT,), negative=(_MEAN, _COUNTS, _UNTRAINED)),
    ),
)
for _claim in (P13, P14):
    CLAIMS.add(_claim.id, _claim)
