"""Sums by hand: the carry found by an order of digits, or by weights of places; digits on a circle, or one by one.

All have two layers of three heads and no MLP. Layer 0 gathers s = Ai + Bi + carry as a number on one direction; layer 1
turns it into the digit s mod 10 by a *staircase*: a head whose query is s attends to the position number s, and the
positions hold the digits.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.models import HookedTransformer
from mnemoscope.models.constructed import (
    SURE,
    CircuitParts,
    dimension_blocks,
    directions,
    set_embeddings,
    set_query_key,
    set_value_output,
    zero_model,
)
from mnemoscope.systems.puzzles.tasks.digit_sum import BASE, DigitSum

ORDERS = {
    "published": (0, 9, 1, 8, 2, 7, 3, 6, 4, 5),
    "nine first": (9, 0, 8, 1, 7, 2, 6, 3, 5, 4),
    "size": tuple(range(9, -1, -1)),
}
"""In the published order the first of two digits decides whether they carry; where they sum to nine, they do not. With
nine first they then do. By size, the larger digit decides, and is often wrong."""
_FINE = 2e4
"""Sharpness of a staircase that tells sums apart whose carries differ by the last digit."""
_UNIT, _CARRY = 0.02, 0.5
"""Lengths of one unit of the sum and of the carry, so that before the unembedding the circle is what varies most."""
_MARGIN = 60.0
_RANK = 15.0
"""Attention scores between neighbours of an order."""
Carry = Literal["published", "nine first", "size", "weights"]
Digits = Literal["circle", "one by one"]


def adder_circuit(task: DigitSum) -> CircuitParts:
    """Names of what `adder` consists of."""
    dims = dimension_blocks(token=task.d_vocab, position=task.n_ctx, sum=1, carry=1, digit=BASE)
    return CircuitParts(dims=dims, heads={"sum": (0, 0), "carry": (0, 1), "low": (1, 0), "high": (1, 1)})


@torch.no_grad()
def adder(task: DigitSum, *, carry: Carry = "published", digits: Digits = "circle") -> HookedTransformer:
    """Add two numbers: s stands for Ai + Bi + carry, where digit i is due.

    - L0H0 attends to Ai and Bi alike and writes their sum on `sum`.
    - L0H1 attends to the first of A(i+1) and B(i+1) in one of `ORDERS`, named by `carry`, and writes 1 on `carry` if it
      is 5 or more. By the published order this is the carry that the place below makes by itself: the carries of chains
      are missed. With `carry` "weights" it writes nothing, and L0H0 attends to all lower places too, each with a tenth
      of the weight above: the sum then has the carry in its fraction, with chains, and no attention depends on digits.
    - L1H0 and L1H1 are staircases for s up to 9 and above. They write the digit into two dimensions of `digit`, on a
      circle, or `one by one` into ten.
    - L0H2 and L1H2 have zero weights.
    """
    circuit = adder_circuit(task)
    model = zero_model(
        circuit, d_vocab=task.d_vocab, n_ctx=task.n_ctx, n_layers=2, n_heads=3, d_head=2 * task.n_ctx + task.d_vocab
    )
    set_embeddings(model, circuit)
    fine = carry == "weights"
    _sum_head(model, task, circuit, lower_too=fine)
    if not fine:
        _carry_head(model, task, circuit, ORDERS[carry])
    vectors = torch.zeros(BASE, BASE)
    if digits == "circle":
        angle = 2 * math.pi * torch.arange(BASE) / BASE
        vectors[:, 0], vectors[:, 1] = angle.cos(), angle.sin()
    else:
        vectors = torch.eye(BASE)
    _staircases(model, task, circuit, vectors, fine=fine)
    model.unembed.W_U[circuit.dims["digit"], :BASE] = _MARGIN * vectors.T
    model.unembed.b_U[BASE:] = -10 * _MARGIN
    return model


def _sum_head(model: HookedTransformer, task: DigitSum, circuit: CircuitParts, *, lower_too: bool) -> None:
    """Attends to the two digits of a place; with the lower ones by a tenth a place, and `=` for what is missing."""
    token, position, total = (directions(model, circuit.dims[name]) for name in ("token", "position", "sum"))
    scores = torch.full((task.n_digits, task.n_ctx), -4 * SURE)
    full = sum(10.0**-place for place in range(task.n_digits)) if lower_too else 1.0
    for place in range(task.n_digits):
        reached = range(place, task.n_digits) if lower_too else (place,)
        for other in reached:
            scores[place, list(task.digit_positions(other))] = (other - place) * -math.log(10)
        missing = 2 * full - 2 * sum(10.0 ** (place - other) for other in reached)
        if missing > 1e-9:
            scores[place, task.due[0]] = math.log(missing)
    set_query_key(model, circuit.heads["sum"], (position[:, list(task.due)], position @ scores.T))
    numbers = token[:, :BASE] @ (2 * full * _UNIT * torch.arange(BASE).float()[:, None])
    set_value_output(model, circuit.heads["sum"], (numbers, total))


def _carry_head(model: HookedTransformer, task: DigitSum, circuit: CircuitParts, order: Sequence[int]) -> None:
    """Attends to the first in an order of the two digits below; from the last place to `=`, which writes nothing."""
    token, position, carry = (directions(model, circuit.dims[name]) for name in ("token", "position", "carry"))
    below = [task.digit_positions(place + 1) for place in range(task.n_digits - 1)] + [(task.due[0],) * 2]
    keys = torch.stack([position[:, list(set(pair))].sum(1) for pair in below], 1)
    ranks = torch.tensor([_RANK * (BASE - order.index(digit)) for digit in range(BASE)])
    every = position.sum(1, keepdim=True)
    set_query_key(
        model,
        circuit.heads["carry"],
        (position[:, list(task.due)], 2 * _RANK * BASE * keys),
        (every, token[:, :BASE] @ ranks[:, None]),
    )
    set_value_output(model, circuit.heads["carry"], (token[:, 5:BASE].sum(1, keepdim=True), _CARRY * carry))


def _staircases(
    model: HookedTransformer,
    task: DigitSum,
    circuit: CircuitParts,
    vectors: Float[Tensor, "digit width"],
    *,
    fine: bool,
) -> None:
    """Heads of layer 1: the score of position k is -(s - k)², that of the second head -(s - 9 - k)²."""
    position, digit = directions(model, circuit.dims["position"]), directions(model, circuit.dims["digit"])
    s = directions(model, circuit.dims["sum"]) / _UNIT + directions(model, circuit.dims["carry"]) / _CARRY
    every, sharp = position.sum(1, keepdim=True), _FINE if fine else SURE
    rounding = 0.4995 if fine else 0.0
    number = torch.arange(task.n_ctx).float()[:, None]
    for name, start, stop in (("low", 0, BASE), ("high", BASE - 1, 2 * BASE)):
        n = stop - start
        steps = torch.where(number < n, number, 0)
        beyond = torch.where(number < n, 0.0, -1e9)
        offset = -sharp * (2 * (start + rounding) * steps + steps.square()) + beyond
        set_query_key(model, circuit.heads[name], (s, 2 * sharp * position @ steps), (every, position @ offset))
        reached = [vectors[(start + int(k)) % BASE] for k in range(min(n, task.n_ctx))]
        written = torch.stack(reached) - (vectors[BASE - 1] if name == "high" else 0.0)
        set_value_output(model, circuit.heads[name], (position[:, : len(reached)], digit @ written.T))
