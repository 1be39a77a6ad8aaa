"""What is known about a constructed model, and the steps by which its weights are set."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.building import build

SURE = 30.0
"""Difference between two attention scores after which the lower key gets next to nothing (1e-13)."""


@dataclass(frozen=True, kw_only=True)
class Circuit:
    """The parts of a constructed model by name.

    Attributes:
        dims: Directions of the residual stream: named blocks of its dimensions.
        heads: Layer and number of every head that does something; the others have zero weights.
        neurons: The neurons of the MLP that belong together, by what they recognise (the model's docstring says what
            the key means).
    """

    dims: Mapping[str, slice]
    heads: Mapping[str, tuple[int, int]]
    neurons: Mapping[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Dimensions in use."""
        return max(block.stop for block in self.dims.values())

    @property
    def n_neurons(self) -> int:
        """Neurons in use."""
        return sum(len(group) for group in self.neurons.values())


def blocks(**widths: int) -> dict[str, slice]:
    """Consecutive blocks of dimensions, in the order of the arguments."""
    result, start = {}, 0
    for name, width in widths.items():
        result[name] = slice(start, start + width)
        start += width
    return result


def blank(circuit: Circuit, *, d_vocab: int, n_ctx: int, n_layers: int = 1, n_heads: int = 2) -> HookedTransformer:
    """A model without normalisation that is large enough; all its weights are zero."""
    spec = ModelSpec(
        d_model=circuit.width + -circuit.width % n_heads,
        n_heads=n_heads,
        n_layers=n_layers,
        mlp=bool(circuit.neurons),
        d_mlp=circuit.n_neurons or None,
        normalization="none",
    )
    model = build(spec, d_vocab=d_vocab, n_ctx=n_ctx, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


def embed(model: HookedTransformer, circuit: Circuit) -> None:
    """One-hot tokens in the block `token`, one-hot positions in `position` (where there is one)."""
    model.embed.W_E[:, circuit.dims["token"]] = torch.eye(model.cfg.d_vocab)
    if "position" in circuit.dims:
        model.pos_embed.W_pos[:, circuit.dims["position"]] = torch.eye(model.cfg.n_ctx)


def directions(model: HookedTransformer, block: slice) -> Float[Tensor, "d_model width"]:
    """The unit vectors of a block, as columns."""
    return torch.eye(model.cfg.d_model)[:, block]


def attend(
    model: HookedTransformer,
    head: tuple[int, int],
    *pairs: tuple[Float[Tensor, "d_model _"], Float[Tensor, "d_model _"]],
) -> None:
    """Score of a key = the sum over the pairs (Q, K) of (query residual @ Q) . (key residual @ K)."""
    attention, number, start = model.blocks[head[0]].attn, head[1], 0
    for query, key in pairs:
        stop = start + query.shape[1]
        assert stop <= model.cfg.d_head
        attention.W_Q[number, :, start:stop] = query * model.cfg.attn_scale
        attention.W_K[number, :, start:stop] = key
        start = stop


def move(
    model: HookedTransformer,
    head: tuple[int, int],
    *pairs: tuple[Float[Tensor, "d_model _"], Float[Tensor, "d_model _"]],
) -> None:
    """What a head writes = the sum over the pairs (V, O) of (attended residual @ V) @ O^T."""
    attention, number, start = model.blocks[head[0]].attn, head[1], 0
    for read, write in pairs:
        stop = start + read.shape[1]
        assert stop <= model.cfg.d_head
        attention.W_V[number, :, start:stop] = read
        attention.W_O[number, start:stop] = write.T
        start = stop
