"""Knowledge about a constructed model, the steps by which its weights are set, and layer normalisation for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.building import build
from mnemoscope.models.lens import HookedTransformer

SURE = 30.0
"""Difference between two attention scores after which the lower key gets next to nothing (1e-13)."""


@dataclass(frozen=True, kw_only=True)
class Circuit:
    """The parts of a constructed model by name.

    `dims` are directions of the residual stream: named blocks of its dimensions. `heads` gives (layer, number) of every
    head that does something; the others have zero weights. `neurons` are those of the MLP that belong together, by what
    they recognise (the model's docstring says what the key means).
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


def blank(
    circuit: Circuit,
    *,
    d_vocab: int,
    n_ctx: int,
    n_layers: int = 1,
    n_heads: int = 2,
    d_output: int | None = None,
    **fields: Any,
) -> HookedTransformer:
    """A model without normalisation that is large enough; all its weights are zero.

    It holds the `circuit`. With `d_output` it reads vectors of width `d_vocab` and gives some of that width; otherwise
    it reads tokens. `fields` are others of `ModelSpec`, such as `d_head` or `attention_dir`.
    """
    spec = ModelSpec(
        d_model=circuit.width + -circuit.width % n_heads,
        n_heads=n_heads,
        n_layers=n_layers,
        mlp=bool(circuit.neurons),
        d_mlp=circuit.n_neurons or None,
        normalization="none",
        **fields,
    )
    model = build(spec, d_vocab=d_vocab, n_ctx=n_ctx, d_output=d_output, seed=0)
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
    attention, number = model.blocks[head[0]].attn, head[1]
    scaled = [(query * model.cfg.attn_scale, key) for query, key in pairs]
    _fill(attention.W_Q[number], attention.W_K[number], scaled)


def move(
    model: HookedTransformer,
    head: tuple[int, int],
    *pairs: tuple[Float[Tensor, "d_model _"], Float[Tensor, "d_model _"]],
) -> None:
    """Set a head's output = the sum over the pairs (V, O) of (attended residual @ V) @ O^T."""
    attention, number = model.blocks[head[0]].attn, head[1]
    _fill(attention.W_V[number], attention.W_O[number].T, pairs)


def _fill(
    first: Float[Tensor, "d_model d_head"],
    second: Float[Tensor, "d_model d_head"],
    pairs: Sequence[tuple[Float[Tensor, "d_model _"], Float[Tensor, "d_model _"]]],
) -> None:
    """Write the columns of the pairs beside each other into two views of weights."""
    start = 0
    for one, other in pairs:
        stop = start + one.shape[1]
        assert stop <= first.shape[1]
        first[:, start:stop], second[:, start:stop] = one, other
        start = stop


_WRITING = ("W_E", "W_pos", "W_O", "b_O", "W_out", "b_out")


@torch.no_grad()
def layer_normalised(model: HookedTransformer, *, anchor: float = 3000.0) -> HookedTransformer:
    """The same circuit with layer normalisation before every attention, MLP and unembedding.

    Every vector r of the residual stream becomes (r, -r, anchor, -anchor): its mean is zero, and its length hardly
    depends on r. Only the first copy is read. The weights of the normalisation undo the fixed length, so that
    everything is read as before, smaller by the factor anchor / sqrt(anchor^2 + |r|^2). What remains is this factor and
    rounding in float32; a large circuit has to be tried.

    The model has two heads per layer and no normalisation. `anchor` is the constant that the positional embedding
    carries; large against r. The result has 2 * d_model + 2 dimensions; those of the circuit are the same as before.
    """
    cfg = model.cfg
    assert cfg.normalization_type is None
    width = 2 * cfg.d_model + 2
    spec = ModelSpec(d_model=width, n_heads=cfg.n_heads, n_layers=cfg.n_layers, mlp=not cfg.attn_only, d_mlp=cfg.d_mlp)
    result = build(spec, d_vocab=cfg.d_vocab, n_ctx=cfg.n_ctx, seed=0)
    old = dict(model.named_parameters())
    for name, parameter in result.named_parameters():
        kind = name.rsplit(".", 1)[-1]
        if kind in ("w", "b"):
            parameter.fill_(anchor * (2 / width) ** 0.5 if kind == "w" else 0.0)
            continue
        parameter.zero_()
        source = old[name] * (result.cfg.attn_scale / cfg.attn_scale if kind in ("W_Q", "b_Q") else 1)
        first = [slice(size) for size in source.shape]
        parameter[*first] = source
        if kind in _WRITING:
            parameter[*first[:-1], cfg.d_model : 2 * cfg.d_model] = -source
    result.pos_embed.W_pos[:, -2:] = torch.tensor([anchor, -anchor])
    return result
