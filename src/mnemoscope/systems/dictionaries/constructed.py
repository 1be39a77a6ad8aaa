"""A task of one pair, and models of it whose memory is set by hand: neurons that are the memory, or that mix it.

A sequence `x y a b x` names a pair, two tokens that do not matter, and x again; the answer is y. Four heads carry x, y,
a and b to the last position, each into dimensions of its own, and the MLP writes the answer from there.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import BaseTask, Batch, HookedModel
from mnemoscope import generator as stream
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
from mnemoscope.systems.dictionaries.answers import SKILL

N = 5
"""Tokens 1 to 5; 0 is never used."""
LOGIT = 10.0
"""Margin of the answer's logit above all others."""
PLACES = {"x": 0, "y": 1, "a": 2, "b": 3}


@dataclass(frozen=True, kw_only=True)
class PairRecall(BaseTask):
    """Name the y of the only pair."""

    name: ClassVar[str] = "pair-recall"

    @property
    def d_vocab(self) -> int:
        """Six tokens, of which 0 is never used."""
        return N + 1

    @property
    def n_ctx(self) -> int:
        """A pair, two others, and x again."""
        return 5

    @property
    def answers(self) -> range:
        """The tokens that occur."""
        return range(1, N + 1)

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences; all splits are alike."""
        return self.batch(torch.randint(1, N + 1, (n, 4), generator=generator))

    def enumerate(self, *, split: str) -> Batch:
        """All 625 sequences; all splits are alike."""
        return self.batch(torch.cartesian_prod(*[torch.arange(1, N + 1)] * 4))

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """One skill, `recall`, at the last position."""
        return {SKILL: batch.scored}

    def batch(self, drawn: Int[Tensor, "batch 4"]) -> Batch:
        """The sequences of some x, y, a and b, with their answers."""
        inputs = torch.cat([drawn, drawn[:, :1]], 1)
        scored, targets = torch.zeros_like(inputs, dtype=torch.bool), torch.zeros_like(inputs)
        scored[:, -1], targets[:, -1] = True, drawn[:, 1]
        return Batch(inputs=inputs, targets=targets, scored=scored)


def detectors() -> HookedModel:
    """One neuron a pair, which is active on that pair alone and writes its y: the neurons are the memory."""
    pairs = [(x, y) for x in range(1, N + 1) for y in range(1, N + 1)]
    model, blocks = carriers(len(pairs))
    mlp = model.blocks[0].mlp
    with torch.no_grad():
        for neuron, (x, y) in enumerate(pairs):
            mlp.W_in[:, neuron] = blocks["x"][:, x] + blocks["y"][:, y]
            mlp.b_in[neuron] = -1.0
            mlp.W_out[neuron] = LOGIT * blocks["answer"][:, y]
    return model


def mixtures() -> HookedModel:
    """Forty neurons, each of which reads a random direction of x, y, a and b; together they write the answer.

    Directions are orthonormal, and two neurons read one, from either side: relu(u s) - relu(-u s) = u s. What x, a and
    b add to each is three times as large as what y adds, and cancels only in the sum.
    """
    model, blocks = carriers(8 * N, others=3.0)
    mlp = model.blocks[0].mlp
    read = torch.cat([blocks[name][:, 1:] for name in PLACES], 1)
    turned = torch.linalg.qr(torch.randn(4 * N, 4 * N, generator=stream(0, "mixtures"), dtype=torch.float32))[0]
    written = LOGIT * blocks["answer"][:, 1:] @ blocks["y"][:, 1:].T @ read @ turned
    with torch.no_grad():
        mlp.W_in.copy_(torch.cat([read @ turned, -read @ turned], 1))
        mlp.W_out.copy_(torch.cat([written, -written], 1).T)
    return model


def mixtures_again() -> HookedModel:
    """Mixtures as another training could give them: neurons read other directions, and heads come in another order."""
    model = mixtures()
    mlp, attention = model.blocks[0].mlp, model.blocks[0].attn
    turn = torch.linalg.qr(torch.randn(4 * N, 4 * N, generator=stream(1, "mixtures"), dtype=torch.float32))[0]
    with torch.no_grad():
        read, written = mlp.W_in[:, : 4 * N] @ turn, turn.T @ mlp.W_out[: 4 * N]
        mlp.W_in.copy_(torch.cat([read, -read], 1))
        mlp.W_out.copy_(torch.cat([written, -written]))
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            getattr(attention, name).copy_(getattr(attention, name).roll(1, 0))
    return model


def copies() -> HookedModel:
    """The head that carries y writes the answer itself, and the only neuron does nothing."""
    model, blocks = carriers(1)
    with torch.no_grad():
        set_value_output(model, (0, list(PLACES).index("y")), (blocks["token"], LOGIT * blocks["answer"]))  # pyright: ignore
    return model


def carriers(n_neurons: int, *, others: float = 1.0) -> tuple[HookedModel, dict[str, Float[Tensor, "d_model token"]]]:
    """A model with some neurons whose heads carry x, y, a and b to the last position, and the directions of its blocks.

    `others` is the length of all but y.
    """
    dims = dimension_blocks(token=N + 1, position=5, **dict.fromkeys((*PLACES, "answer"), N + 1))
    circuit = CircuitParts(
        dims=dims,
        heads={name: (0, number) for number, name in enumerate(PLACES)},
        neurons={(number,): (number,) for number in range(n_neurons)},
    )
    model = zero_model(circuit, d_vocab=N + 1, n_ctx=5, n_heads=4)
    with torch.no_grad():
        set_embeddings(model, circuit)
        blocks = {name: directions(model, block) for name, block in dims.items()}
        for name, place in PLACES.items():
            position = blocks["position"]
            set_query_key(model, circuit.heads[name], (position[:, -1:], SURE * position[:, place, None]))
            length = 1.0 if name == "y" else others
            set_value_output(model, circuit.heads[name], (blocks["token"], length * blocks[name]))
        model.unembed.W_U[dims["answer"]] = torch.eye(N + 1)
    return model, blocks
