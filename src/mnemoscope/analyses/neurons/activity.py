r"""When the MLP neurons of a layer are active, and what their activity says about the input.

A row is one position of one sequence. Its weight is the probability of the sequence, shared evenly among the positions
that are looked at. What is known there are *latents*,
in this order:

- `target`, the next token; `token`, the one at this position; `position`;
- the integer latents of the batch. One with a column per slot is taken apart, `y[2]` being slot 2 (columns count from
  1); one with a value per position is taken at this position;
- `input@3`, the token at position 3 (positions count from 0), up to the first position that is looked at; where
  positions have names `input@y2`.

Several may say the same: at the last position `token` is the last input.

`selectivity` is the mutual information of a neuron's activity with every latent. The activity is made discrete: active
or not (`post` > 0), or cut at the neuron's own quantiles. For neuron state a and latent z,

.. math:: I(a; z) = \sum_{a,z} p(a, z) \log_2 \frac{p(a, z)}{p(a) p(z)} \text{ bits},

also as a share of the neuron's entropy H(a) (how much of what it does the latent explains) and of the latent's H(z)
(how much of the latent can be read from it). Probabilities are the weights of the rows: on an enumerated batch this is
exact. On a sample it is the plug-in estimate, which is biased upwards (Miller, 1955). Both are compared with a control:
the latents of another row, drawn by weight, which cannot say anything about this one.

`top_inputs` are the rows with the highest activation, the trigger examples of Geva et al., 2021.

It shows what could be read from a neuron. It does not show that the model reads it, or reads this out of it: random
weights make random functions of the input, so that neurons of untrained models carry information about tokens too.
Related latents share information; the highest figure is not proof that this latent, and not one like it, drives the
neuron.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.analyses.neurons.keys_values import mlp_block
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.numerics import entropy_of, mutual_information, quantile_states, quantised, relabelled
from mnemoscope.core.protocols import HookedModel, evaluation_mode
from mnemoscope.core.seeding import generator
from mnemoscope.engine.budget import rows_at_once
from mnemoscope.interventions.replacements import positions


@dataclass(frozen=True, kw_only=True, eq=False)
class NeuronActivity:
    """The activity of a layer's neurons, as `neuron_activity` records it.

    `batch` are the sequences that weigh something, `activation` the values after the activation function (`post`),
    float64. Each row has its `sequence` (row of `batch`), its position `pos` in it, what is known there (`latents`),
    and a weight; `weights` add up to one.
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
    model: HookedModel, batch: Batch, *, layer: int = 0, pos: int | str | Sequence[int] | None = None
) -> NeuronActivity:
    """Record a layer's neurons.

    The MLP has two matrices. Weights of the batch are the probabilities; sequences of weight zero and padding are left
    out. `pos` is positions, negative ones from the end, or the name of a latent that holds one a sequence. None is the
    last scored one; of padded sequences each one's own. Raises InputError where the model has no such neurons, is too
    small, or gives NaN, a position does not exist, or nothing in the batch is scored or weighs anything.
    """
    mlp_block(model, layer)
    check_fits(model, batch)
    batch = batch if batch.weights is None else batch.select(batch.weights > 0)
    if len(batch) == 0:
        raise InputError("no sequence of the batch weighs anything; give weights above zero, or none")
    where = _positions(batch, pos)
    name = f"blocks.{layer}.mlp.hook_post"
    parts = []
    size = rows_at_once(model, batch.inputs.shape[1])
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


def family(latent: str) -> str:
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
    where = positions(wanted, batch) & real
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
    """
    in_range("n_draws", n_draws, 1, math.inf)
    weights, names, classes = activity.weights, *_classes(activity, latents)
    states = _states(activity, n_states)
    of_neuron, of_latent = entropy_of(states, weights), entropy_of(classes, weights)
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
        "active": (("neuron",), weights @ (quantised(activity.activation) > 0).double()),
    }
    attrs = {
        "unit": "bits",
        "layer": activity.layer,
        "n": len(activity.batch),
        "state": "active or not" if n_states is None else f"{n_states} quantiles of the activation",
        "estimate": "plug-in: exact on an enumeration, on a sample too high by about `control`",
    }
    variables = {name: (dims, values.cpu().numpy()) for name, (dims, values) in arrays.items()}
    return xr.Dataset(variables, coords={"neuron": range(states.shape[1]), "latent": names}, attrs=attrs)


def top_inputs(activity: NeuronActivity, *, n: int = 10) -> xr.Dataset:
    """The rows at which each neuron is most active.

    Fewer than `n` where there are not as many rows; of equals the earlier row comes first. Raises InputError for n
    below one.

    Returns:
        `active`, over (neuron, rank): whether there is such a row with an activation above zero; and where there is:
        `activation`, `sequence` (the row of `activity.batch`) and `pos` over (neuron, rank), `inputs` over (neuron,
        rank, input_pos), `latents` over (neuron, rank, latent). Elsewhere activations and latents are NaN and the
        others -1.
    """
    in_range("n", n, 1, math.inf)
    rows = top_rows(activity, n)
    activation = activity.activation.gather(0, rows.clamp(min=0).T).T
    known = torch.stack(list(activity.latents.values()), -1).double()
    place = ("neuron", "rank")
    arrays = {
        "active": (place, rows >= 0, False),
        "activation": (place, activation, torch.nan),
        "sequence": (place, activity.sequence[rows], -1),
        "pos": (place, activity.pos[rows], -1),
        "inputs": ((*place, "input_pos"), activity.batch.inputs[activity.sequence[rows]], -1),
        "latents": ((*place, "latent"), known[rows], torch.nan),
    }
    variables = {}
    for name, (dims, values, absent) in arrays.items():
        absent_here = (rows < 0).view(*rows.shape, *[1] * (values.ndim - 2))
        variables[name] = (dims, values.masked_fill(absent_here, absent).cpu().numpy())
    coords = {"neuron": range(len(rows)), "rank": range(1, rows.shape[1] + 1), "latent": list(activity.latents)}
    return xr.Dataset(variables, coords=coords, attrs={"layer": activity.layer, "n": len(activity.batch)})


def top_rows(activity: NeuronActivity, n: int) -> Int[Tensor, "neuron rank"]:
    """The rows of the `n` highest activations, the highest first; -1 where the neuron is not active."""
    steps = quantised(activity.activation)
    ordered, rows = steps.sort(dim=0, descending=True, stable=True)
    return rows.masked_fill(ordered <= 0, -1)[:n].T


def _states(activity: NeuronActivity, n_states: int | None) -> Int[Tensor, "row neuron"]:
    steps = quantised(activity.activation)
    if n_states is None:
        return (steps > 0).long()
    in_range("n_states", n_states, 2, math.inf)
    return quantile_states(steps, activity.weights, n_states)


def _classes(activity: NeuronActivity, latents: Sequence[str] | None) -> tuple[list[str], Int[Tensor, "row latent"]]:
    """The chosen latents that vary, relabelled, and their names."""
    known = activity.latents
    for name in latents or ():
        one_of("a latent", name, [*known, *dict.fromkeys(map(family, known))])
    chosen = [name for name in known if latents is None or name in latents or family(name) in latents]
    classes = {name: relabelled(known[name]) for name in chosen}
    classes = {name: values for name, values in classes.items() if int(values.max()) > 0}
    if not classes:
        raise InputError("none of the latents varies over the rows; name others, or take more sequences")
    return list(classes), torch.stack(list(classes.values()), 1)
