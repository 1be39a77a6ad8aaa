"""P8 to P10: digits on a circle, the carry on one direction and by an order of digits, and which layer matters."""

from functools import partial

from mnemoscope import CLAIMS, Gate, HookedModel, Subject
from mnemoscope.claims import EFFECT, GATE, Case, case, controls, most, table
from mnemoscope.core import Replacement
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.puzzles.analyses.digit_sum import (
    N_FITTED,
    accuracy,
    carry_direction,
    carry_heads,
    carry_orders,
    digit_circles,
    layer_costs,
)
from mnemoscope.systems.puzzles.claim_parts import TEXTS, puzzle_claim, units
from mnemoscope.systems.puzzles.constructed.digit_sum import Carry, Digits, adder
from mnemoscope.systems.puzzles.tasks.digit_sum import DigitSum

PRESET = "digit-sum"
UNITS = units(PRESET)
LEARNED = 0.98
SOURCE = "ARENA, monthly algorithmic problem, sum of two numbers"
CIRCLE, HALF, ORDERED, UNORDERED, NATS = 0.8, 0.5, 0.94, 0.7, 1.0
digit_sum_claim = partial(
    puzzle_claim,
    source=SOURCE,
    units=UNITS,
    gate=Gate(statement=f"answers {100 * LEARNED:g} % of the digits right or more", at_least=LEARNED),
    prompts="own",
)


def measure_directions(subject: Subject) -> dict[str, float]:
    """The circle of digits before the unembedding and the direction of the carry, each at the worst place.

    Beside them `late`, the direction of the carry before the unembedding, and how much of the variance it has.
    """
    digits, carry = digit_circles(subject), carry_direction(subject)
    return {
        GATE: accuracy(subject),
        "circle": float(digits.circle.min()),
        "followed": float(digits.followed.min()),
        "early": float(carry.early.min()),
        "late": float(carry.late.min()),
        "early_share": float(carry.early_share.min()),
        "late_share": float(carry.late_share.min()),
    }


def measure_order(subject: Subject) -> dict[str, float]:
    """Effect of the carry head, and the order of digits by which it chooses, each at the worst place."""
    orders = carry_orders(subject)
    return {
        GATE: accuracy(subject),
        "carries": float(carry_heads(subject).carries.min()),
        "order": float(orders.published.min()),
        "either": float(orders.either.min()),
        "size": float(orders["size"].min()),
        "looks": float(orders.looks.min()),
        "n_published": float((orders.published > ORDERED).sum()),
        "n_nine_first": float((orders["nine first"] > ORDERED).sum()),
    }


def measure_layers(subject: Subject, *, kind: Replacement = "mean") -> dict[str, float]:
    """Cost of a head of layer 0 less that of one of layer 1, means over heads (`EFFECT`), and both."""
    cost = layer_costs(subject, kind=kind).mean("head").to_numpy()
    return {
        GATE: accuracy(subject),
        EFFECT: float(cost[0] - cost[1]),
        "layer_0": float(cost[0]),
        "layer_1": float(cost[1]),
    }


def adding(carry: Carry, digits: Digits) -> HookedModel:
    """A hand-set model."""
    return adder(DigitSum(), carry=carry, digits=digits)


def _built(name: str, carry: Carry = "published", digits: Digits = "circle") -> Case:
    return case(name, set_by_hand(PRESET, partial(adding, carry, digits), DigitSum()), n=1)


def _planted(name: str, cost: float) -> Case:
    return table(name, {PRESET: {GATE: 1.0, EFFECT: cost, "layer_0": 5.0 + cost, "layer_1": 5.0}})


# Before training the logit differences are near zero, so that their shares magnify rounding.
UNTRAINED = case("untrained", untrained(UNITS), n=2, elsewhere=1e-3)
_circle, _one_by_one = _built("carry by order, digits on a circle"), _built("digits one by one", digits="one by one")
_nine, _size, _weights = (
    _built("nine first", "nine first"),
    _built("the larger digit", "size"),
    _built("by weights", "weights"),
)
_P8 = digit_sum_claim(
    id="P8",
    statement="Before the unembedding digits lie on a circle; layer 0 writes the carry on one direction.",
    measure=measure_directions,
    explanation=TEXTS.explain("P8", circle=CIRCLE, half=HALF, n_fitted=N_FITTED),
    parts=(
        most("circle", "above", CIRCLE, "share of the variance"),
        most("followed", "above", CIRCLE, "share of the answers"),
        most("early", "above", CIRCLE, "share of the logit difference"),
    ),
    controls=controls(positive=(_circle,), negative=(_one_by_one, UNTRAINED)),
)
P8 = _P8.against(
    _P8.rival(
        "table",
        "Digits stand one by one: no two directions carry them.",
        parts=(most("followed", "below", HALF, "share of the answers"),),
        controls=controls(positive=(_one_by_one,), negative=(_circle,)),
    ),
)
_P9 = digit_sum_claim(
    id="P9",
    statement="A head of layer 0 finds the carry: it attends to the digit that comes first in 0, 9, 1, 8, …, 4, 5.",
    measure=measure_order,
    explanation=TEXTS.explain("P9", half=HALF, ordered=ORDERED, unordered=UNORDERED),
    parts=(
        most("carries", "above", HALF, "share of the logit difference"),
        most("order", "above", ORDERED, "share of the prompts"),
    ),
    controls=controls(positive=(_circle,), negative=(_nine, _size, _weights, UNTRAINED)),
)
P9 = _P9.against(
    _P9.rival(
        "either",
        "The digit farther from the middle comes first; which of 0 and 9, of 1 and 8 does is open.",
        parts=(
            most("either", "above", ORDERED, "share of the prompts"),
            most("order", "below", ORDERED, "share of the prompts"),
        ),
        controls=controls(positive=(_nine,), negative=(_circle, _size, _weights, UNTRAINED)),
    ),
    _P9.rival(
        "size",
        "It attends by the size of the digits.",
        parts=(most("size", "above", ORDERED, "share of the prompts"),),
        controls=controls(positive=(_size,), negative=(_circle, _weights, UNTRAINED)),
    ),
    _P9.rival(
        "none",
        "Digits do not decide where it attends.",
        parts=(most("either", "below", UNORDERED, "share of the prompts"),),
        controls=controls(positive=(_weights,), negative=(_circle, _nine)),
    ),
)
_P10 = digit_sum_claim(
    id="P10",
    statement="Heads of layer 1 matter less than those of layer 0.",
    quantifier="most",
    margin=NATS,
    unit="nats",
    measure=measure_layers,
    explanation=TEXTS.explain("P10", nats=NATS),
    factors={"kind": ("resample",)},
    controls=controls(positive=(_circle,), negative=(_planted("costs at the margin", NATS), UNTRAINED)),
)
P10 = _P10.against(
    _P10.rival(
        "more",
        "They matter more.",
        quantifier="most",
        direction="below",
        margin=-NATS,
        unit="nats",
        controls=controls(positive=(_planted("layer 1 costs more", -3.0),), negative=(_circle, UNTRAINED)),
    ),
)
for _claim in (P8, P9, P10):
    CLAIMS.add(_claim.id, _claim)
