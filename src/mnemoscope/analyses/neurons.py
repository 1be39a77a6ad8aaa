r"""MLP neurons as key/value memories: what they read and write by their weights, and what their activity says.

A feed-forward layer is a key/value memory: neuron i compares what arrives with its key, column i of W_in, and writes
its value, row i of W_out, as strongly as they agree (Geva et al., 2021, "Transformer Feed-Forward Layers Are Key-Value
Memories"). Keys are read in the model's own inputs. With :math:`k_i` the column of W_in, taken through the gain and the
centring of ln2, and :math:`r_i^h` the direction :math:`W_V^h W_O^h k_i`, taken through those of ln1:

- `key_token`: :math:`E_t \cdot k_i`, token t at the neuron's own position,
- `key_pos`: :math:`P_q \cdot k_i`, that position itself,
- `key_head_token`: :math:`E_t \cdot r_i^h`, token t where head h attends,
- `key_head_pos`: :math:`P_j \cdot r_i^h`, the position where head h attends,
- `key_bias`: all biases that reach the neuron through the residual stream; `bias`: what is added after ln2.

In the first layer, and without normalisation, the pre-activation at position q is exactly a sum: `key_token` of its
token + `key_pos` of q + the sum over heads h and positions j of the attention from q to j times (`key_head_token` of
the token at j + `key_head_pos` of j) + `key_bias` + `bias`. With normalisation the terms of position j are divided by
ln1's scale at j, and everything but `bias` by ln2's scale at q; these scales depend on the sequence and are left out
here. In deeper layers, what earlier layers write is missing: the read covers the embeddings and this layer's own heads.
A value is read as its direct effect on the logits: the row of W_out through the gain and the centring of ln_final and
through W_U, less its mean over tokens, because a constant in the logits changes nothing.

The weights show what would excite a neuron and what it would write. They do not show that this input ever occurs, nor
that anything depends on the neuron (`neuron_effects`). A value in an early layer misses what later layers make of it.

*Activity.* A row is one position of one sequence. Its weight is the probability of the sequence, shared evenly among
the positions that are looked at. What is known there are *latents*, in this order: `target`, the next token; `token`,
the one at this position; `position`; the integer latents of the batch (one with a column per slot is taken apart,
`y[2]` being slot 2, counted from 1; one with a value per position is taken at this position); and `input@3`, the token
at position 3, counted from 0, up to the first position that is looked at (`input@y2` where positions have names).
Several may say the same: at the last position `token` is the last input.

`selectivity` is the mutual information of a neuron's activity with every latent. The activity is made discrete: active
or not (`post` > 0), or cut at the neuron's own quantiles. For neuron state a and latent z,

.. math:: I(a; z) = \sum_{a,z} p(a, z) \log_2 \frac{p(a, z)}{p(a) p(z)} \text{ bits},

also as a share of the neuron's entropy H(a) (how much of what it does the latent explains) and of the latent's H(z)
(how much of the latent can be read from it). Probabilities are the weights of the rows: on an enumerated batch this is
exact. On a sample it is the plug-in estimate, which is biased upwards (Miller, 1955). Both are compared with a control:
the latents of another row, drawn by weight, which cannot say anything about this one. `top_inputs` are the rows with
the highest activation, the trigger examples of Geva et al., 2021.

Activity shows what could be read from a neuron. It does not show that the model reads it: random weights make random
functions of the input, so that neurons of untrained models carry information about tokens too. Related latents share
information; the highest figure is not proof that this latent, and not one like it, drives the neuron.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.analyses.head_weights import EffectiveWeights, effective_weights
from mnemoscope.analyses.units import Units, keys_before_norm, layer_units
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.numerics import (
    class_entropy,
    mutual_information,
    number_classes,
    quantile_states,
    quantise,
    to_numpy,
)
from mnemoscope.core.protocols import ModelLike, evaluation_mode, resolve_model
from mnemoscope.core.seeding import generator
from mnemoscope.engine.budget import n_rows_at_once
from mnemoscope.interventions.replacements import position_mask

MAX_BYTES = 2**30
"""Largest array that a read may make."""


@check_arguments
@torch.no_grad()
def neuron_keys(
    model: ModelLike,
    *,
    layer: int = 0,
    units: Units = "neurons",
    neurons: Sequence[int] | None = None,
    tokens: Sequence[int] | None = None,
) -> xr.Dataset:
    """The gain of each neuron's pre-activation from every input of the model, in units of the pre-activation.

    `units` are neurons, or the features of the layer's dictionary. Raises InputError where the model has no MLP of this
    kind, an index does not exist, the weights hold NaN, features read something else than the MLP, or the result would
    be larger than a gigabyte.

    Returns:
        `key_token` over (neuron, token), `key_head_token` over (neuron, head, token), `key_bias` and `bias` over
        neuron; if positional embeddings are added to the tokens' also `key_pos` over (neuron, pos) and `key_head_pos`
        over (neuron, head, pos). float64. `attrs["exact"]` is 1 where these terms, weighted with the attention, make
        up the whole pre-activation.

    >>> ms.analyses.neuron_keys(model).key_token.dims
    ('neuron', 'token')
    """
    own: Any = (model := resolve_model(model))
    cfg = own.cfg
    keys, biases = keys_before_norm(model, layer, units)
    chosen, words = _indices("neuron", neurons, len(keys)), _indices("token", tokens, cfg.d_vocab)
    _bounded(len(chosen) * cfg.n_heads * max(len(words), cfg.n_ctx))
    weights = effective_weights(model, [layer])
    key, bias = keys[chosen], biases[chosen]
    attention = own.blocks[layer].attn  # what is written is not centred: keys are, unless they read the stream itself
    by_head = torch.einsum("nd,hed->nhe", key, attention.W_O.double())
    source_key = torch.einsum("nhe,hde->nhd", by_head, weights.W_V[0])
    head_bias = torch.einsum("nhe,he->n", by_head, weights.b_V[0])
    inputs = {"token": own.embed.W_E.double()[words]}
    inputs |= {} if weights.W_pos is None else {"pos": own.pos_embed.W_pos.double()}
    arrays = {
        **{f"key_{name}": (("neuron", name), key @ embedding.T) for name, embedding in inputs.items()},
        **{f"key_head_{name}": (("neuron", "head", name), source_key @ e.T) for name, e in inputs.items()},
        "key_bias": (("neuron",), head_bias + key @ attention.b_O.double()),
        "bias": (("neuron",), bias),
    }
    coords = {"neuron": chosen, "token": words, "head": list(range(cfg.n_heads))}
    coords |= {"pos": list(range(len(inputs["pos"])))} if "pos" in inputs else {}
    return _dataset(arrays, coords, layer, weights).assign_attrs(
        unit="pre-activation",
        exact=int(layer == 0 and not weights.normalised),
        missing="nothing" if layer == 0 else "what earlier layers write",
    )


@check_arguments
@torch.no_grad()
def neuron_values(
    model: ModelLike,
    *,
    layer: int = 0,
    units: Units = "neurons",
    neurons: Sequence[int] | None = None,
    n_top: int = 5,
) -> xr.Dataset:
    """The direct addition of each neuron's value to the logits, for an activation of one.

    `n_top` tokens are named, or all of a smaller vocabulary. `units` and errors as for `neuron_keys`; features may read
    and write anything. Raises InputError where `n_top` is below one.

    Returns:
        `value` over (neuron, token), of the tokens that have a logit, float64, its mean over these zero; `promoted` and
        `suppressed` over (neuron, rank): the tokens with the largest and with the smallest logits, the extreme one
        first.

    >>> ms.analyses.neuron_values(model, n_top=1).promoted.dims
    ('neuron', 'rank')
    """
    model = resolve_model(model)
    of_layer, cfg = layer_units(model, layer, units), model.cfg
    in_range("n_top", n_top, 1, math.inf)
    chosen, n_top = _indices("neuron", neurons, len(of_layer)), min(n_top, cfg.d_vocab_out)
    _bounded(len(chosen) * cfg.d_vocab_out)
    weights = effective_weights(model, [layer])
    value = of_layer.value.double()[chosen] @ weights.W_U
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
    variables = {name: (dims, to_numpy(values)) for name, (dims, values) in arrays.items()}
    scale = "; the normalisations' scale left out" if weights.normalised else ""
    return xr.Dataset(variables, coords=coords, attrs={"layer": layer, "weights": weights.description + scale})


@dataclass(frozen=True, kw_only=True, eq=False)
class NeuronActivity:
    """The activity (`post`, or `feature`, float64) of a layer's neurons, as `neuron_activity` records it.

    `batch` are the sequences that weigh something. Each row has its `sequence` (row of `batch`), its position `pos` in
    it, what is known there (`latents`), and a weight; `weights` add up to one.
    """

    layer: int
    batch: Batch
    activation: Float[Tensor, "row neuron"]
    weights: Float[Tensor, " row"]
    sequence: Int[Tensor, " row"]
    pos: Int[Tensor, " row"]
    latents: Mapping[str, Int[Tensor, " row"]]


@torch.no_grad()
def neuron_activity(
    model: ModelLike,
    batch: Batch,
    *,
    layer: int = 0,
    units: Units = "neurons",
    pos: int | str | Sequence[int] | None = None,
) -> NeuronActivity:
    """Record a layer's neurons, or the features of its dictionary.

    Weights of the batch are the probabilities; sequences of weight zero and padding are left out. `pos` is positions,
    negative ones from the end, or the name of a latent that holds one a sequence. None is the last scored one; of
    padded sequences each one's own. Raises InputError where the model has no such neurons, is too small, or gives NaN,
    a position does not exist, or nothing in the batch is scored or weighs anything.

    >>> activity = ms.analyses.neuron_activity(model, batch)
    >>> activity.layer
    0
    """
    model = resolve_model(model, batch=batch)
    name = layer_units(model, layer, units).site.hook
    check_fits(model, batch)
    batch = batch if batch.weights is None else batch.select(batch.weights > 0)
    if len(batch) == 0:
        raise InputError("no sequence of the batch weighs anything; give weights above zero, or none")
    where = _positions(batch, pos)
    parts = []
    size = n_rows_at_once(model, batch.inputs.shape[1])
    for inputs, here in zip(batch.inputs.split(size), where.split(size), strict=True):
        with evaluation_mode(model):
            _, cache = model.run_with_cache(inputs, names_filter=name, stop_at_layer=layer + 1)
        parts.append(cache[name][here].double())
    activation = torch.cat(parts)
    if activation.isnan().any():
        raise InputError(f"the activations of layer {layer} hold NaN; check the model's weights")
    n, device = len(batch), batch.inputs.device
    sequence, at = where.nonzero(as_tuple=True)
    weights = torch.ones(n, device=device) if batch.weights is None else batch.weights
    weights = weights.double()[sequence]
    return NeuronActivity(
        layer=layer,
        batch=batch,
        activation=activation,
        weights=weights / weights.sum(),
        sequence=sequence,
        pos=at,
        latents=_latents(batch, sequence, at, int(at.min())),
    )


def latent_family(latent: str) -> str:
    """The name of a latent without its slot or position: `y` for `y[2]`, `input` for `input@3`."""
    return latent.partition("[")[0].partition("@")[0]


def _positions(batch: Batch, pos: int | str | Sequence[int] | None) -> Bool[Tensor, "batch pos"]:
    n_pos, real = batch.inputs.shape[1], batch.real
    if pos is None:
        scored = batch.scored & real
        if not scored.any():
            raise InputError("pos is not given and the batch scores no position; name one")
        numbers = torch.arange(n_pos, device=scored.device)
        if not batch.ragged:
            return (numbers == scored.any(0).nonzero()[-1]).expand(scored.shape)
        return scored & (numbers == torch.where(scored, numbers, -1).amax(1, keepdim=True))
    if isinstance(pos, str):
        wanted = pos
    else:
        given = [pos] if isinstance(pos, int) else list(pos)
        for place in given:
            in_range("pos", place, -n_pos, n_pos - 1)
        if not given or len({place % n_pos for place in given}) < len(given):
            raise InputError(f"pos must name at least one position, and each once; got {given}")
        wanted = tuple(given)
    where = position_mask(wanted, batch) & real
    if not where.any():
        raise InputError(f"pos {pos!r} lies in the padding of every sequence; name another")
    return where


def _latents(batch: Batch, sequence: Tensor, pos: Tensor, first: int) -> dict[str, Int[Tensor, " row"]]:
    """Every latent at every row, in the order that the module names."""
    n_pos = batch.inputs.shape[1]
    result = {"target": batch.targets[sequence, pos], "token": batch.inputs[sequence, pos], "position": pos}
    for name, value in batch.latents.items():
        if value.is_floating_point() or value.is_complex() or not 1 <= value.ndim <= 2:
            continue
        value = value.long()
        if value.ndim == 1:
            result[name] = value[sequence]
        elif value.shape[1] == n_pos:
            result[name] = value[sequence, pos]
        else:
            result |= {f"{name}[{i + 1}]": value[sequence, i] for i in range(value.shape[1])}
    return result | {f"input@{batch.position_name(i)}": batch.inputs[sequence, i] for i in range(first + 1)}


@check_arguments
def selectivity(
    activity: NeuronActivity,
    *,
    n_states: int | None = None,
    latents: Sequence[str] | None = None,
    n_draws: int = 10,
    seed: int = 0,
) -> xr.Dataset:
    """Mutual information of each neuron's activity with each latent.

    `n_states` quantiles cut the activation; none: active (`post` > 0) or not. `latents` are names (`y[2]`) or families
    of names (`y`); none: all. The `n_draws` controls come from the seed's stream `control`. Raises InputError for an
    unknown latent, fewer than two states, or no draws.

    Returns:
        Over (neuron, latent): `information`; `explains`, its share of the neuron's entropy (NaN if that is zero);
        `readable`, its share of the latent's; `control`, the mean information about another row's latent, an
        estimate of the bias. `control_level` over latent: the largest of those, over neurons and draws.
        `neuron_entropy` and `active`, the probability of being active, over neuron; `latent_entropy` over latent. All
        entropies in bits; latents that do not vary are left out.

    >>> activity = ms.analyses.neuron_activity(model, batch)
    >>> ms.analyses.selectivity(activity, n_draws=2).information.dims
    ('neuron', 'latent')
    """
    in_range("n_draws", n_draws, 1, math.inf)
    weights, names, classes = activity.weights, *_classes(activity, latents)
    states = _states(activity, n_states)
    of_neuron, of_latent = class_entropy(states, weights), class_entropy(classes, weights)
    information = mutual_information(states, classes, weights)
    stream, shares = generator(seed, "control"), weights.cpu()
    rows = [torch.multinomial(shares, len(shares), replacement=True, generator=stream) for _ in range(n_draws)]
    control = torch.stack([mutual_information(states, classes[other.to(classes.device)], weights) for other in rows])
    pair = ("neuron", "latent")
    arrays = {
        "information": (pair, information),
        "explains": (pair, information / of_neuron.where(of_neuron > 1e-9, torch.nan)[:, None]),
        "readable": (pair, information / of_latent),
        "control": (pair, control.mean(0)),
        "control_level": (("latent",), control.amax((0, 1))),
        "neuron_entropy": (("neuron",), of_neuron),
        "latent_entropy": (("latent",), of_latent),
        "active": (("neuron",), weights @ (quantise(activity.activation) > 0).double()),
    }
    attrs = {
        "unit": "bits",
        "layer": activity.layer,
        "n": len(activity.batch),
        "state": "active or not" if n_states is None else f"{n_states} quantiles of the activation",
        "estimate": "plug-in: exact on an enumeration, on a sample too high by about `control`",
    }
    variables = {name: (dims, to_numpy(values)) for name, (dims, values) in arrays.items()}
    return xr.Dataset(variables, coords={"neuron": range(states.shape[1]), "latent": names}, attrs=attrs)


def _states(activity: NeuronActivity, n_states: int | None) -> Int[Tensor, "row neuron"]:
    steps = quantise(activity.activation)
    if n_states is None:
        return (steps > 0).long()
    in_range("n_states", n_states, 2, math.inf)
    return quantile_states(steps, activity.weights, n_states)


def _classes(activity: NeuronActivity, latents: Sequence[str] | None) -> tuple[list[str], Int[Tensor, "row latent"]]:
    """The chosen latents that vary, relabelled, and their names."""
    known = activity.latents
    for name in latents or ():
        one_of("a latent", name, [*known, *dict.fromkeys(map(latent_family, known))])
    chosen = [name for name in known if latents is None or name in latents or latent_family(name) in latents]
    classes = {name: number_classes(known[name]) for name in chosen}
    classes = {name: values for name, values in classes.items() if int(values.max()) > 0}
    if not classes:
        raise InputError("none of the latents varies over the rows; name others, or take more sequences")
    return list(classes), torch.stack(list(classes.values()), 1)
