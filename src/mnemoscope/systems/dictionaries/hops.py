"""A model whose hops are known to lie in layers: every MLP applies one function to what the MLP before it has written.

A token (h, a) stands for the value a after h hops, and the answer is the value after the last hop. Layer l finds the
value after l hops in a block of dimensions of its own, with one neuron a value, and writes the next value into the next
block. So a layer writes what follows from the block before, whichever hop a sequence starts at. Attention does nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import generator
from mnemoscope.models import HookedTransformer
from mnemoscope.models.constructed import CircuitParts, dimension_blocks, directions, zero_model

N_VALUES, N_HOPS = 16, 3
Stream = Float[Tensor, "row d_model"]
Change = Callable[[int, Stream], Stream]
"""From a layer, and what is written there, to what is written instead."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Passed:
    """The inputs of the MLPs (the stream before each) and their outputs in a forward pass, and the last stream."""

    reads: Float[Tensor, "layer row d_model"]
    writes: Float[Tensor, "layer row d_model"]
    last: Stream


@torch.no_grad()
def chain(draw: int) -> HookedTransformer:
    """The model with the functions of a draw, permutations of the values."""
    draws = generator(draw, "hops in layers")
    circuit = CircuitParts(
        dims=dimension_blocks(**{f"after {n}": N_VALUES for n in range(N_HOPS + 1)}),
        heads={},
        neurons={(value,): (value,) for value in range(N_VALUES)},
    )
    model = zero_model(circuit, d_vocab=N_HOPS * N_VALUES, n_ctx=1, n_layers=N_HOPS, n_heads=1, d_vocab_out=N_VALUES)
    *before, last = (directions(model, block) for block in circuit.dims.values())
    model.embed.W_E.copy_(torch.cat(before, 1).T)
    for block, reads, writes in zip(model.blocks, before, [*before[1:], last], strict=True):
        block.mlp.W_in.copy_(reads)
        block.mlp.W_out.copy_(writes[:, torch.randperm(N_VALUES, generator=draws)].T)
    model.unembed.W_U.copy_(last)
    return model


def starting_at(*hops: int) -> Int[Tensor, " token"]:
    """The tokens of all values after so many hops."""
    return torch.cat([hop * N_VALUES + torch.arange(N_VALUES) for hop in hops])


@torch.no_grad()
def passed(model: HookedTransformer, tokens: Int[Tensor, " row"], change: Change | None = None) -> Passed:
    """A forward pass on sequences of one token each; `change` acts on what an MLP writes before it is read."""
    stream, reads, writes = model.embed(tokens), [], []
    for layer, block in enumerate(model.blocks):
        reads.append(stream)
        writes.append(block.mlp(stream[:, None])[:, 0])
        stream = stream + (writes[-1] if change is None else change(layer, writes[-1]))
    return Passed(reads=torch.stack(reads), writes=torch.stack(writes), last=stream)


@torch.no_grad()
def answers(model: HookedTransformer, last: Stream) -> Int[Tensor, " row"]:
    """The most probable value for each last stream."""
    return model(last[:, None], start_at_layer=N_HOPS)[:, 0].argmax(-1)


def varied(model: HookedTransformer, n: int, seed: int) -> Passed:
    """Forward passes of `n` tokens in which half of what is written is that of another token of the same layer."""
    draws = generator(seed, "varied")

    def exchange(layer: int, written: Stream) -> Stream:
        there = written.any(-1).nonzero()[:, 0]
        donors = there[torch.randint(len(there), (n,), generator=draws)]
        changed = (torch.rand(n, generator=draws, dtype=torch.float32) < 0.5) & written.any(-1)
        return torch.where(changed[:, None], written[donors], written)

    return passed(model, torch.randint(N_HOPS * N_VALUES, (n,), generator=draws), exchange)
