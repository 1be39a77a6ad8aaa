r"""Keys and values of a layer's MLP neurons, read from the weights.

A feed-forward layer is a key/value memory: neuron i compares what arrives with its key, column i of W_in, and writes
its value, row i of W_out, as strongly as they agree (Geva et al., 2021, "Transformer Feed-Forward Layers Are Key-Value
Memories"). Keys are read here in the model's own inputs. With :math:`k_i` the column of W_in, taken through the gain
and the centring of ln2, and :math:`r_i^h` the direction :math:`W_V^h W_O^h k_i`, taken through those of ln1:

- `key_token`: :math:`E_t \cdot k_i`, token t at the neuron's own position,
- `key_pos`: :math:`P_q \cdot k_i`, that position itself,
- `key_head_token`: :math:`E_t \cdot r_i^h`, token t where head h attends,
- `key_head_pos`: :math:`P_j \cdot r_i^h`, the position where head h attends,
- `key_bias`: all biases that reach the neuron through the residual stream; `bias`: what is added after ln2.

In the first layer, and without normalisation, the pre-activation at position q is exactly `key_token` of its token +
`key_pos` of q + the sum over heads h and positions j of the attention from q to j times (`key_head_token` of the token
at j + `key_head_pos` of j) + `key_bias` + `bias`. With normalisation the terms of position j are divided by ln1's scale
at j, and everything but `bias` by ln2's scale at q; these scales depend on the sequence and are left out here. In
deeper layers, what earlier layers write is missing: the read covers the embeddings and this layer's own heads.

A value is read as its direct effect on the logits: the row of W_out through the gain and the centring of ln_final and
through W_U, less its mean over tokens, because a constant in the logits changes nothing.

It shows what would excite a neuron and what it would write. It does not show that this input ever occurs (see
`selectivity`), nor that anything depends on the neuron (see `neuron_effects`). A value read in an early layer misses
what later layers make of it.

How a key reads the residual stream before ln2: a key k that reads LN(x) = g (x - mean x) / s + b reads (k g - mean(k
g)) . x / s + k . b from x. The scale s depends on x and is left out.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.circuits.weights import EffectiveWeights, effective_weights
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.protocols import HookedModel

_NORMALISATIONS = (None, "LN", "LNPre", "RMS", "RMSPre")


def mlp_block(model: HookedModel, layer: int) -> Any:
    """The block of a layer whose MLP has one key and one value per neuron.

    Raises InputError where the layer does not exist; its MLP is missing, gated, of several experts, beside the
    attention or normalised after it; or a weight of the model holds NaN.
    """
    cfg = model.cfg
    in_range("layer", layer, 0, cfg.n_layers - 1)
    if cfg.attn_only:
        raise InputError("the model has no MLP (attn_only), so it has no neurons; take a model with one")
    if getattr(cfg, "gated_mlp", False):
        raise InputError("the model's MLP is gated: a neuron has two keys; take a model whose MLP is W_in and W_out")
    if getattr(cfg, "num_experts", None):
        raise InputError("the model's MLP is a mixture of experts; take a model whose MLP is W_in and W_out")
    if getattr(cfg, "parallel_attn_mlp", False):
        raise InputError("the model's MLP stands beside the attention; take a model whose MLP comes after it")
    if getattr(cfg, "use_normalization_before_and_after", False):
        raise InputError("the model normalises what its MLP writes; take a model that adds it as it is")
    one_of("the model's normalization_type", cfg.normalization_type, _NORMALISATIONS)
    for name, value in model.named_parameters():
        if value.isnan().any():
            raise InputError(f"the weight {name} of the model holds NaN; take an earlier checkpoint")
    return model.blocks[layer]


def keys_before_norm(block: Any, kind: str | None) -> tuple[Float[Tensor, "neuron d_model"], Float[Tensor, " neuron"]]:
    """The columns of W_in as they read the input of ln2 (of `kind`), and what they get from biases there; float64."""
    key, bias = block.mlp.W_in.double().T, block.mlp.b_in.double()
    if kind == "LN":
        bias = bias + key @ block.ln2.b.double()
    if kind in ("LN", "RMS"):
        key = key * block.ln2.w.double()
    return (key - key.mean(-1, keepdim=True) if kind in ("LN", "LNPre") else key), bias


MAX_BYTES = 2**30
"""Largest array that a read may make."""


@torch.no_grad()
def neuron_keys(
    model: HookedModel, *, layer: int = 0, neurons: Sequence[int] | None = None, tokens: Sequence[int] | None = None
) -> xr.Dataset:
    """The gain of each neuron's pre-activation from every input of the model, in units of the pre-activation.

    The model has attention before the MLP. Raises InputError where it has no MLP of this kind, an index does not exist,
    the weights hold NaN, or the result would be larger than a gigabyte.

    Returns:
        `key_token` over (neuron, token), `key_head_token` over (neuron, head, token), `key_bias` and `bias` over
        neuron; if positional embeddings are added to the tokens' also `key_pos` over (neuron, pos) and `key_head_pos`
        over (neuron, head, pos). float64. `attrs["exact"]` is 1 where these terms, weighted with the attention, make
        up the whole pre-activation.
    """
    block, cfg = mlp_block(model, layer), model.cfg
    chosen, words = _indices("neuron", neurons, cfg.d_mlp), _indices("token", tokens, cfg.d_vocab)
    _bounded(len(chosen) * cfg.n_heads * max(len(words), cfg.n_ctx))
    weights = effective_weights(model, [layer])
    key, bias = (part[chosen] for part in keys_before_norm(block, cfg.normalization_type))
    by_head = torch.einsum("nd,hed->nhe", key, weights.W_O[0])
    source_key = torch.einsum("nhe,hde->nhd", by_head, weights.W_V[0])
    head_bias = torch.einsum("nhe,he->n", by_head, weights.b_V[0])
    inputs = {"token": weights.W_E[words]} | ({} if weights.W_pos is None else {"pos": weights.W_pos})
    arrays = {
        **{f"key_{name}": (("neuron", name), key @ embedding.T) for name, embedding in inputs.items()},
        **{f"key_head_{name}": (("neuron", "head", name), source_key @ e.T) for name, e in inputs.items()},
        "key_bias": (("neuron",), head_bias + key @ block.attn.b_O.double()),
        "bias": (("neuron",), bias),
    }
    coords = {"neuron": chosen, "token": words, "head": list(range(cfg.n_heads))}
    coords |= {"pos": list(range(len(inputs["pos"])))} if "pos" in inputs else {}
    return _dataset(arrays, coords, layer, weights).assign_attrs(
        unit="pre-activation",
        exact=int(layer == 0 and not weights.normalised),
        missing="nothing" if layer == 0 else "what earlier layers write",
    )


@torch.no_grad()
def neuron_values(
    model: HookedModel, *, layer: int = 0, neurons: Sequence[int] | None = None, n_top: int = 5
) -> xr.Dataset:
    """The direct addition of each neuron's value to the logits, for an activation of one.

    `n_top` tokens are named, or all of a smaller vocabulary. Raises InputError as `neuron_keys`, and where `n_top` is
    below one.

    Returns:
        `value` over (neuron, token), of the tokens that have a logit, float64, its mean over these zero; `promoted` and
        `suppressed` over (neuron, rank): the tokens with the largest and with the smallest logits, the extreme one
        first.
    """
    block, cfg = mlp_block(model, layer), model.cfg
    in_range("n_top", n_top, 1, math.inf)
    chosen, n_top = _indices("neuron", neurons, cfg.d_mlp), min(n_top, cfg.d_vocab_out)
    _bounded(len(chosen) * cfg.d_vocab_out)
    weights = effective_weights(model, [layer])
    value = block.mlp.W_out.double()[chosen] @ weights.W_U
    value = value - value.mean(-1, keepdim=True)
    order = value.argsort(dim=-1, descending=True, stable=True)
    arrays = {
        "value": (("neuron", "token"), value),
        "promoted": (("neuron", "rank"), order[:, :n_top]),
        "suppressed": (("neuron", "rank"), order.flip(-1)[:, :n_top]),
    }
    coords = {"neuron": chosen, "token": list(range(cfg.d_vocab_out)), "rank": list(range(1, n_top + 1))}
    result = _dataset(arrays, coords, layer, weights)
    return result.assign_attrs(unit="logit for an activation of one, centred over tokens", path="direct")


def _indices(name: str, given: Sequence[int] | None, n: int) -> list[int]:
    """The chosen indices, all of them by default."""
    for index in given or ():
        in_range(f"a {name}", index, 0, n - 1)
    return list(range(n)) if given is None else list(given)


def _bounded(n_numbers: int) -> None:
    if 8 * n_numbers > MAX_BYTES:
        given = f"{8 * n_numbers / 2**30:.1f} GiB: name fewer neurons or tokens"
        raise InputError(f"the largest array must have at most {MAX_BYTES / 2**30:g} GiB; got {given}")


def _dataset(
    arrays: Mapping[str, tuple[tuple[str, ...], Tensor]],
    coords: Mapping[str, list[int]],
    layer: int,
    weights: EffectiveWeights,
) -> xr.Dataset:
    variables = {name: (dims, values.cpu().numpy()) for name, (dims, values) in arrays.items()}
    scale = "; the normalisations' scale left out" if weights.normalised else ""
    return xr.Dataset(variables, coords=coords, attrs={"layer": layer, "weights": weights.description + scale})
