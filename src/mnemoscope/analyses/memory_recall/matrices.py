"""Matrices of a model, and the vectors that they should map, by name.

Everything is read as the next reader sees it: the gain and the centring of LayerNorm are folded into the matrices that
read the residual stream (see `circuits.weights`), in a copy in float64. Sigma, by which LayerNorm divides, and biases
are left out. Where the candidates are logits, sigma is one positive factor for all of them; where they are keys or
queries, each has another sigma, so that the model's own order may be another one. Matrices act on rows.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.head_weights import EffectiveWeights, chosen_indices, effective_weights
from mnemoscope.analyses.neurons import keys_before_norm, mlp_block
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import ParamSite

Product = Literal["QK", "OV", "MLP"]
Embedding = Literal["W_E", "W_pos", "W_U"]
BY_HEAD = ("W_Q", "W_K", "W_V", "W_O")


@torch.no_grad()
def weight(model: HookedModel, site: ParamSite) -> Float[Tensor, "d_in d_out"]:
    """One weight matrix of a model, LayerNorm folded into those that read.

    A `site` with a head gives the matrix of that head. W_in and W_out lead to and from the neurons, W_Q, W_K and W_V to
    the inside of the head, W_O from there. Attention scores and logits must be products of weight matrices. Raises
    InputError where the model is not supported, or the site is a bias, names no head, does not exist or is not finite.
    """
    if not site.is_matrix:
        raise InputError(f"site must be a matrix, not a bias; got {site}; name one of the W_ weights")
    if site.name in ("W_in", "W_out"):
        assert site.layer is not None
        block = mlp_block(model, site.layer)
        found = keys_before_norm(block, model.cfg.normalization_type)[0].T if site.name == "W_in" else block.mlp.W_out
        return found.detach().double()
    weights = effective_weights(model, [site.layer or 0])
    if site.name in BY_HEAD:
        return getattr(weights, site.name)[0, _head(model, site.head, str(site))]
    return positions(weights) if site.name == "W_pos" else getattr(weights, site.name)


@torch.no_grad()
def product(model: HookedModel, name: Product, *, layer: int, head: int | None = None) -> Float[Tensor, "d_in d_out"]:
    """A product of two weight matrices, from the residual stream to the residual stream.

    `QK` is W_Q W_K^T / attn_scale, from the query's side to the key's, in attention scores. `OV` is W_V W_O. `MLP` is
    W_in W_out, as if the activation function were the identity. Errors are those of `weight`.
    """
    one_of("name", name, get_args(Product))
    if name == "MLP":
        if head is not None:
            raise InputError(f"an MLP has no heads; leave head out, got {head}")
        return weight(model, ParamSite(name="W_in", layer=layer)) @ weight(model, ParamSite(name="W_out", layer=layer))
    weights = effective_weights(model, [layer])
    of = (0, _head(model, head, name))
    return qk(weights, of) if name == "QK" else ov(weights, of)


@torch.no_grad()
def embeddings(
    model: HookedModel, name: Embedding, chosen: Sequence[int] | None = None
) -> Float[Tensor, "chosen d_model"]:
    """Embeddings of tokens (`W_E`) or positions (`W_pos`), or the directions that logits read (`W_U`), as rows.

    Without `chosen` all of them. Raises InputError as `weight`, and where an index is out of range.
    """
    one_of("name", name, get_args(Embedding))
    matrix = weight(model, ParamSite(name=name))
    rows = matrix.T if name == "W_U" else matrix
    return rows[chosen_indices("chosen", chosen, len(rows))]


def ov(weights: EffectiveWeights, head: tuple[int, int]) -> Float[Tensor, "d_model d_model"]:
    """From where a head attends to what it writes; the layer is an index into those of the weights."""
    return weights.W_V[head] @ weights.W_O[head]


def qk(weights: EffectiveWeights, head: tuple[int, int]) -> Float[Tensor, "d_model d_model"]:
    """From the query's side to the key's, in attention scores; the layer as for `ov`."""
    return weights.W_Q[head] @ weights.W_K[head].T / weights.attn_scale[head[0]]


def positions(weights: EffectiveWeights) -> Float[Tensor, "n_ctx d_model"]:
    """The positional embeddings; refused where they are not added to the residual stream."""
    if weights.W_pos is None:
        raise InputError("the model adds no positions to the residual stream (rotary, say): take one that does")
    return weights.W_pos


def _head(model: HookedModel, head: int | None, name: str) -> int:
    if head is None:
        raise InputError(f"{name} is one matrix per head; name the head, from 0 to {model.cfg.n_heads - 1}")
    in_range(f"the head of {name}", head, 0, model.cfg.n_heads - 1)
    return head
