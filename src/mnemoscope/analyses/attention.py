"""Attention patterns: of every head with the names of the tokens, and of one layer to measure on.

Patterns are correlational: where a head looks is not yet what it contributes; that takes an intervention.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.core.batch import CHUNK, Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.protocols import HookedModel, evaluation_mode, has_linear_attention, is_hooked
from mnemoscope.core.site import Site
from mnemoscope.interventions.reading import observe_run, pick_nothing, unembedding

MAX_BYTES = 2**28
"""For the patterns of one layer, unless another bound is given."""


@torch.no_grad()
def patterns(model: HookedModel, batch: Batch) -> Float[Tensor, "batch layer head_index query key"]:
    """Attention patterns of every layer; rows add up to one."""
    with unembedding(model, pick_nothing):
        _, cache = model.run_with_cache(batch.inputs, names_filter=lambda name: name.endswith("attn.hook_pattern"))
    return torch.stack([cache[f"blocks.{layer}.attn.hook_pattern"] for layer in range(model.cfg.n_layers)], 1)


def patterns_of_sequences(model: HookedModel, batch: Batch, symbols: Sequence[str] | None = None) -> xr.Dataset:
    """The attention of every head on each sequence of a batch, of any task.

    `symbols` name the tokens; without them the batch does. Raises InputError where the model is too small for it.

    Returns:
        `pattern` over (example, layer, head, query, key) and `token` over (example, key), such as `x2=4` where
        positions have names; all of these are numbered. `n_tokens` over example: how many of them are no padding.
    """
    check_fits(model, batch)
    if symbols is None:
        return named_patterns(model, batch, batch.symbols)
    return named_patterns(model, batch, [[str(symbols[token]) for token in row] for row in batch.inputs.tolist()])


def named_patterns(model: HookedModel, batch: Batch, names: Sequence[Sequence[str]] | None = None) -> xr.Dataset:
    """The same for sequences that may be of vectors; without `names`, only positions are named.

    Raises InputError where the model does not fit the batch.
    """
    check_fits(model, batch, vectors=True)
    where = range(batch.inputs.shape[1])
    called = list(batch.positions[: len(where)])
    if names is None:
        tokens = [called or [str(pos) for pos in where]] * len(batch)
    elif called:
        tokens = [[f"{position}={name}" for position, name in zip(called, row, strict=True)] for row in names]
    else:
        tokens = [list(row) for row in names]
    own = {"example": range(len(batch)), "layer": range(model.cfg.n_layers), "head": range(model.cfg.n_heads)}
    return xr.Dataset(
        {
            "pattern": (("example", "layer", "head", "query", "key"), patterns(model, batch).cpu().numpy()),
            "token": (("example", "key"), tokens),
            "n_tokens": ("example", batch.known_lengths.tolist()),
        },
        coords={**own, "query": where, "key": where, **batch.labels(query=where, key=where)},
    )


@torch.no_grad()
def layer_attention(model: HookedModel, layer: int, batch: Batch) -> Float[Tensor, "batch head_index query key"]:
    """The patterns of the heads of one layer, in float64; rows add up to one.

    Raises InputError where the layer does not exist, the model is too small for the batch, or attention is NaN or has
    no softmax.
    """
    in_range("layer", layer, 0, model.cfg.n_layers - 1)
    found: list[Tensor] = []
    each_layer(model, batch, lambda _, rows, attention: found.append(attention), layers=[layer])
    return torch.cat(found)


@torch.no_grad()
def each_layer(
    model: HookedModel,
    batch: Batch,
    use: Callable[[int, slice, Float[Tensor, "rows head_index query key"]], object],
    *,
    layers: Sequence[int] | None = None,
    max_bytes: int = MAX_BYTES,
) -> None:
    """Hand on the patterns of layer after layer, in float64; rows add up to one. They are the model's to 1e-5.

    One forward pass for every chunk of sequences, as far as the last layer that is wanted; nothing is unembedded. `use`
    gets the layer, which sequences, and their patterns, which it must not keep if memory counts. `max_bytes` bounds the
    patterns of a layer and what is made of them. Raises InputError where the model is too small for the batch, or
    attention is NaN or has no softmax.
    """
    check_fits(model, batch, vectors=True)
    if has_linear_attention(model):
        raise InputError("patterns are shares where there is a softmax; attention has none here")
    layers = range(model.cfg.n_layers) if layers is None else sorted(layers)
    n_pos, size = batch.inputs.shape[1], len(batch)
    if not is_hooked(model):  # hooks that are on the model may know its rows
        size = max(1, min(CHUNK, max_bytes // (32 * model.cfg.n_heads * n_pos**2)))
    for start in range(0, len(batch), size):
        rows = slice(start, min(start + size, len(batch)))

        def take(pattern: Tensor, *, layer: int, rows: slice) -> None:
            # one row may stand for all
            attention = pattern.detach().double().expand(rows.stop - rows.start, *pattern.shape[1:])
            # TransformerLens turns a row of NaN into zeros, so that the logits do not show it
            if not (attention.sum(-1) > 0.5).all():
                raise InputError(
                    f"the attention of layer {layer} is NaN; check the weights, or take an earlier checkpoint"
                )
            use(layer, rows, attention)

        taken = {Site(kind="pattern", layer=layer).hook: partial(take, layer=layer, rows=rows) for layer in layers}
        if not observe_run(model, batch.inputs[rows], taken):
            hooks = [(name, partial(_told, use=told)) for name, told in taken.items()]
            with evaluation_mode(model):
                model.run_with_hooks(batch.inputs[rows], fwd_hooks=hooks, stop_at_layer=layers[-1] + 1)


def _told(activation: Tensor, hook: Any, *, use: Callable[[Tensor], None]) -> None:
    """A hook that changes nothing."""
    use(activation)
