"""Models of one layer with weights set by hand that add modulo p: a clock, a pizza, and a table that is neither.

They are the controls of what tells the two apart. All read a b, with the answer at b, and are exact.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.models import HookedTransformer
from mnemoscope.models.constructed import (
    SURE,
    CircuitParts,
    dimension_blocks,
    directions,
    set_query_key,
    set_value_output,
    zero_model,
)
from mnemoscope.systems.modular_addition.tasks import ModularAddition

FREQUENCIES = (1, 4, 9, 13)
SURENESS = 20.0
"""Factor of the logits."""
GAIN = 1000.0
"""Factor of what is written for others to read, who divide by it: the embedding's own way there is next to nothing."""
_N_PIECES, _N_DIRECTIONS = 6, 9


def circles(p: int, frequencies: Sequence[int]) -> Float[Tensor, "number width"]:
    """Cosine and sine of every frequency at every number."""
    angles = 2 * math.pi * torch.outer(torch.arange(p), torch.tensor(frequencies)) / p
    return torch.stack((angles.cos(), angles.sin()), -1).flatten(1)


def _model(task: ModularAddition, width: int, n_neurons: int) -> tuple[HookedTransformer, dict[str, Tensor]]:
    """A model whose one head that does something writes from the block `token` to the block `read`."""
    assert not task.equals
    dims = dimension_blocks(token=width, read=width, answer=width, position=task.n_ctx)
    circuit = CircuitParts(dims=dims, heads={"first": (0, 0)}, neurons={(): tuple(range(n_neurons))})
    model = zero_model(
        circuit, d_vocab=task.d_vocab, n_ctx=task.n_ctx, n_heads=1, attention_dir="bidirectional", d_head=width
    )
    dim = {name: directions(model, block) for name, block in dims.items()}
    model.pos_embed.W_pos[:] = GAIN * dim["position"].T
    return model, dim


def _prefer_first(model: HookedTransformer, dim: dict[str, Tensor], by: float) -> None:
    """From the second place the score of the first is larger by so much."""
    second, first = (dim["position"][:, place : place + 1] / GAIN for place in (1, 0))
    set_query_key(model, (0, 0), (second, by * first))


def _look_back(model: HookedTransformer, dim: dict[str, Tensor]) -> None:
    """The head attends from the second number to the first and copies it, enlarged by the gain."""
    _prefer_first(model, dim, SURE)
    set_value_output(model, (0, 0), (dim["token"], GAIN * dim["read"]))


@torch.no_grad()
def clock(task: ModularAddition, *, frequencies: Sequence[int] = FREQUENCIES) -> HookedTransformer:
    """Numbers are angles, and the MLP multiplies: cos(w(a + b)) = cos wa cos wb - sin wa sin wb, and the sine alike.

    A product is a difference of squares, xy = ((x + y)² - (x - y)²) / 4, and every square is straight on each of six
    equal pieces of [0, 2]. The head brings the first number, of which only the second number's place knows.
    """
    p, n = task.modulus, len(frequencies)
    products = [(0, 0, 0, 1), (1, 1, 0, -1), (1, 0, 1, 1), (0, 1, 1, 1)]  # part of a, of b, of the answer, its sign
    per_frequency = len(products) * 4 * _N_PIECES
    model, dim = _model(task, 2 * n, n * per_frequency)
    model.embed.W_E[:] = circles(p, frequencies) @ dim["token"].T
    _look_back(model, dim)
    mlp: Any = model.blocks[0].mlp
    width = 2 / _N_PIECES
    each = product(range(n), products, (1, -1), (1, -1), range(_N_PIECES))
    for neuron, (k, (of_a, of_b, of_answer, sign), between, side, piece) in enumerate(each):
        first, second = dim["read"][:, 2 * k + of_a] / GAIN, dim["token"][:, 2 * k + of_b]
        mlp.W_in[:, neuron] = side * (first + between * second)
        mlp.b_in[neuron] = -piece * width
        slope = width * (2 if piece else 1)
        mlp.W_out[neuron] = GAIN * sign * between * slope / 4 * dim["answer"][:, 2 * k + of_answer]
    model.unembed.W_U[:] = SURENESS / GAIN * dim["answer"] @ circles(p, frequencies).T
    return model


@torch.no_grad()
def pizza(task: ModularAddition, *, frequencies: Sequence[int] = FREQUENCIES) -> HookedTransformer:
    """Numbers are angles, attention adds them up, and the MLP takes absolute values.

    The head gives 2/3 of its weight to the first number and 1/3 to the second, three times as large: 2 E_a + E_b, which
    with the E_b that is there already is even.

    With x = cos wa + cos wb and y = sin wa + sin wb, |x cos φ + y sin φ| = 2 |cos(w(a - b)/2)| |cos(w(a + b)/2 - φ)|.
    Nine directions φ, each written at the phase 2φ, leave |cos(w(a - b)/2)| cos(w(a + b - c)), all but exactly.
    """
    p, n = task.modulus, len(frequencies)
    model, dim = _model(task, 2 * n, n * 2 * _N_DIRECTIONS)
    model.embed.W_E[:] = circles(p, frequencies) @ dim["token"].T
    _prefer_first(model, dim, math.log(2))
    set_value_output(model, (0, 0), (dim["token"], 3 * dim["token"]))
    mlp: Any = model.blocks[0].mlp
    for neuron, (k, i, side) in enumerate(product(range(n), range(_N_DIRECTIONS), (1, -1))):
        here, phi = slice(2 * k, 2 * k + 2), math.pi * i / _N_DIRECTIONS
        reads, writes = (torch.tensor([math.cos(m * phi), math.sin(m * phi)]) for m in (1, 2))
        mlp.W_in[:, neuron] = side / 2 * dim["token"][:, here] @ reads
        mlp.W_out[neuron] = GAIN / _N_DIRECTIONS * dim["answer"][:, here] @ writes
    model.unembed.W_U[:] = SURENESS / GAIN * dim["answer"] @ circles(p, frequencies).T
    return model


@torch.no_grad()
def lookup(task: ModularAddition, *, seed: int = 0) -> HookedTransformer:
    """A table of answers: one neuron for every pair of numbers, without circles.

    Neurons write with factors between 1 and 2, drawn by `seed`, so that some answers are surer than others.
    """
    p = task.modulus
    model, dim = _model(task, p, p * p)
    model.embed.W_E[:] = dim["token"].T
    _look_back(model, dim)
    mlp: Any = model.blocks[0].mlp
    batch = task.table()
    first, second, answer = (batch.latents[name] for name in ("a", "b", "sum"))
    mlp.W_in[:] = dim["read"][:, first] / GAIN + dim["token"][:, second]
    mlp.b_in[:] = -1
    factors = 1 + torch.rand(p * p, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    mlp.W_out[:] = GAIN * (factors * dim["answer"][:, answer]).T
    model.unembed.W_U[:] = SURENESS / GAIN * dim["answer"]
    return model
