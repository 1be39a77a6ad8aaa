"""An MLP that recalls: it names the value whose weight equals that of the slot which is repeated."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.models import HookedTransformer
from mnemoscope.models.constructed import CircuitParts, directions

HALF_WIDTH = 0.5
"""Half width of a tent, in units of the smallest weight: weights are whole numbers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Readings:
    """Linear readings of the residual stream for one pair of query token and value.

    `difference` is the weight of the value minus that of the repeated slot, `unit` the smallest weight. `shut` is zero
    at the last position where the heads report a repeat of this query token, else more than any difference.
    """

    difference: Float[Tensor, " d_model"]
    unit: Float[Tensor, " d_model"]
    shut: Float[Tensor, " d_model"]


def slot_weights(n_values: int) -> Float[Tensor, " slot"]:
    """The weights of the y of the slots 1 to V - 1: ..., 4, 2, 1."""
    return 2.0 ** torch.arange(n_values - 2, -1, -1)


def recall_neurons(n_values: int, *, queries: Iterable[int] | None = None) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Three neurons for every (query token, value), then one for every (token,) at slot 1; no queries: all tokens."""
    values = range(1, n_values + 1)
    pairs = [(query, value) for query in queries or values for value in values]
    tents = {pair: (3 * i, 3 * i + 1, 3 * i + 2) for i, pair in enumerate(pairs)}
    return tents | {(value,): (3 * len(pairs) + value - 1,) for value in values}


def set_recall(
    model: HookedTransformer,
    circuit: CircuitParts,
    readings: Mapping[tuple[int, int], Readings],
    *,
    slope: float,
    gate: float,
    recall: float,
) -> None:
    """Set a tent for every (query token, value), open at the last position, on its query token, where `shut` is zero.

    Neurons read `readings` times `slope`. `gate`, more than any reading, shuts a neuron at another position, and again
    on another token. For every unit of the tent they write `recall` on the value.
    """
    token, position = directions(model, circuit.dims["token"]), directions(model, circuit.dims["position"])
    for (query, value), read in readings.items():
        elsewhere = gate * (2 * position.sum(1) - token[:, query] - position[:, -1])
        set_tent(model, circuit, (query, value), replace(read, shut=read.shut + elsewhere), slope=slope, height=recall)


def set_tent(
    model: HookedTransformer,
    circuit: CircuitParts,
    key: tuple[int, int],
    read: Readings,
    *,
    slope: float,
    height: float,
) -> None:
    """Set the three neurons of a (query token, value) to relu(d + h) - 2 relu(d) + relu(d - h).

    With d the difference and h the half width it is h at d = 0, and zero beyond h and where `shut` is not zero.
    """
    mlp, answer = model.blocks[0].mlp, directions(model, circuit.dims["answer"])
    for neuron, shift, weight in zip(circuit.neurons[key], (1, 0, -1), (1, -2, 1), strict=True):
        mlp.W_in[:, neuron] = slope * (read.difference + shift * HALF_WIDTH * read.unit - read.shut)
        mlp.W_out[neuron] = weight * height * answer[:, key[1]]


def mend_first_slot(model: HookedTransformer, circuit: CircuitParts, amount: float) -> None:
    """At position 0 a head has only x to attend to; one neuron for every token adds `amount` to its answer there."""
    mlp = model.blocks[0].mlp
    token, position, answer = (directions(model, circuit.dims[name]) for name in ("token", "position", "answer"))
    for value in range(1, model.cfg.d_vocab):
        (neuron,) = circuit.neurons[value,]
        mlp.W_in[:, neuron] = token[:, value] + position[:, 0] - position.sum(1)
        mlp.W_out[neuron] = amount * answer[:, value]
