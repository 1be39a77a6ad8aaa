"""The activity of a layer's MLP neurons at some positions of a batch, beside everything that is known there.

A row is one position of one sequence. Its weight is the probability of the sequence, shared evenly among the positions
that are looked at. What is known there are *latents*, in this order:

- `target`, the next token; `token`, the one at this position; `position`;
- the integer latents of the batch. One with a column a slot is taken apart, `y[2]` being slot 2 (columns count from
  1); one with a value a position is taken at this position;
- `input@3`, the token at position 3 (positions count from 0), up to the first position that is looked at.

Several may say the same: at the last position `token` is the last input.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.analyses.neurons.block import mlp_block
from mnemoscope.core.batch import CHUNK, Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.protocols import HookedModel


@dataclass(frozen=True, kw_only=True, eq=False)
class NeuronActivity:
    """What `neuron_activity` returns.

    Attributes:
        layer: Whose MLP.
        batch: The sequences that weigh something.
        activation: After the activation function (`post`), float64.
        weights: Of the rows; they add up to one.
        sequence: Row of `batch`.
        pos: Position in it.
        latents: What is known at each row.
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
    model: HookedModel, batch: Batch, *, layer: int = 0, pos: int | Sequence[int] | None = None
) -> NeuronActivity:
    """Record a layer's neurons.

    Args:
        model: With an MLP of two matrices.
        batch: Enumerated or sampled; its weights, if it has them, are the probabilities. Sequences of weight zero
            are left out.
        layer: Whose MLP.
        pos: Positions, negative ones from the end; none: the last scored one.

    Raises:
        InputError: The model has no such neurons or is too small for the batch, a position does not exist, nothing
            in the batch is scored or weighs anything, or an activation is NaN.
    """
    mlp_block(model, layer)
    check_fits(model, batch)
    batch = batch if batch.weights is None else batch.select(batch.weights > 0)
    if len(batch) == 0:
        raise InputError("no sequence of the batch weighs anything; give weights above zero, or none")
    places = _positions(batch, pos)
    name = f"blocks.{layer}.mlp.hook_post"
    parts = []
    for inputs in batch.inputs.split(CHUNK):
        _, cache = model.run_with_cache(inputs, names_filter=name, stop_at_layer=layer + 1)
        parts.append(cache[name][:, places].flatten(0, 1).double())
    activation = torch.cat(parts)
    if activation.isnan().any():
        raise InputError(f"the activations of layer {layer} hold NaN; check the model's weights")
    n, device = len(batch), batch.inputs.device
    sequence = torch.arange(n, device=device).repeat_interleave(len(places))
    at = torch.tensor(places, device=device).repeat(n)
    weights = torch.ones(n, device=device) if batch.weights is None else batch.weights
    weights = weights.double()[sequence]
    return NeuronActivity(
        layer=layer,
        batch=batch,
        activation=activation,
        weights=weights / weights.sum(),
        sequence=sequence,
        pos=at,
        latents=_latents(batch, sequence, at, min(places)),
    )


def family(latent: str) -> str:
    """The name of a latent without its slot or position: `y` for `y[2]`, `input` for `input@3`."""
    return latent.partition("[")[0].partition("@")[0]


def _positions(batch: Batch, pos: int | Sequence[int] | None) -> list[int]:
    n_pos = batch.inputs.shape[1]
    if pos is None:
        scored = batch.scored.any(0).nonzero()
        if not len(scored):
            raise InputError("pos is not given and the batch scores no position; name one")
        return [int(scored[-1])]
    given = [pos] if isinstance(pos, int) else list(pos)
    for place in given:
        in_range("pos", place, -n_pos, n_pos - 1)
    if not given or len({place % n_pos for place in given}) < len(given):
        raise InputError(f"pos must name at least one position, and each once; got {given}")
    return [place % n_pos for place in given]


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
    return result | {f"input@{i}": batch.inputs[sequence, i] for i in range(first + 1)}
