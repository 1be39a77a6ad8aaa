"""Attention patterns of heads: all of them with names for a view, or one layer at a time where they do not fit.

*Does not show* what a head contributes: patterns are correlational, and attention to a key need not use it. What a
mechanism is worth is measured by putting it in the head's place (`attention_replacement`).
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import CHUNK, Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.protocols import (
    HookedModel,
    ModelLike,
    attention_mix,
    evaluation_mode,
    has_linear_attention,
    is_hooked,
    resolve_model,
)
from mnemoscope.core.site import Site
from mnemoscope.interventions.reading import observe_run, pick_nothing, unembed_only

MAX_BYTES = 2**28
"""For the patterns of one layer, unless another bound is given."""


@torch.no_grad()
def patterns(model: ModelLike, batch: Batch) -> Float[Tensor, "batch layer head_index query key"]:
    """Attention patterns of every layer; rows add up to one.

    >>> ms.analyses.patterns(model, batch).shape
    torch.Size([64, 1, 2, 9, 9])
    """
    model = resolve_model(model, batch=batch)
    with unembed_only(model, pick_nothing):
        _, cache = model.run_with_cache(batch.inputs, names_filter=lambda name: name.endswith("attn.hook_pattern"))
    return torch.stack([cache[f"blocks.{layer}.attn.hook_pattern"] for layer in range(model.cfg.n_layers)], 1)


@check_arguments
def named_patterns(
    model: ModelLike, batch: Batch, names: Sequence[str] | Sequence[Sequence[str]] | None = None
) -> xr.Dataset:
    """The attention of every head on each sequence of a batch, of any task, with names for a view.

    `names` are those of all tokens, or of the entries of every sequence; without them tokens are named by the batch,
    and vectors by their positions. Raises InputError where the model does not fit the batch.

    Returns:
        `pattern` over (example, layer, head, query, key) and `token` over (example, key), such as `x2=4` where
        positions have names; all of these are numbered. `n_tokens` over example: how many of them are no padding.

    >>> ms.analyses.named_patterns(model, batch.select(slice(1))).pattern.dims
    ('example', 'layer', 'head', 'query', 'key')
    """
    model = resolve_model(model, batch=batch)
    check_fits(model, batch, vectors=True)
    where = range(batch.inputs.shape[1])
    places = list(batch.positions[: len(where)])
    if names is None:
        rows = None if batch.has_vectors else batch.symbols
    elif isinstance(names[0], str):
        rows = [[str(names[token]) for token in row] for row in batch.inputs.tolist()]
    else:
        rows = names
    if rows is None:
        tokens = [places or [str(pos) for pos in where]] * len(batch)
    elif places:
        tokens = [[f"{place}={name}" for place, name in zip(places, row, strict=True)] for row in rows]
    else:
        tokens = [list(row) for row in rows]
    own = {"example": range(len(batch)), "layer": range(model.cfg.n_layers), "head": range(model.cfg.n_heads)}
    return xr.Dataset(
        {
            "pattern": (("example", "layer", "head", "query", "key"), to_numpy(patterns(model, batch))),
            "token": (("example", "key"), tokens),
            "n_tokens": ("example", batch.known_lengths.tolist()),
        },
        coords={**own, "query": where, "key": where, **batch.labels(query=where, key=where)},
    )


@torch.no_grad()
def layer_attention(model: ModelLike, layer: int, batch: Batch) -> Float[Tensor, "batch head_index query key"]:
    """The patterns of the heads of one layer, in float64; rows add up to one.

    Raises InputError where the layer does not exist, the model is too small for the batch, or attention is NaN or has
    no softmax.

    >>> ms.analyses.layer_attention(model, 0, batch).shape
    torch.Size([64, 2, 9, 9])
    """
    model = resolve_model(model, batch=batch)
    in_range("layer", layer, 0, model.cfg.n_layers - 1)
    found: list[Tensor] = []
    visit_layers(model, batch, lambda _, rows, attention: found.append(attention), layers=[layer])
    return torch.cat(found)


@torch.no_grad()
def visit_layers(
    model: HookedModel,
    batch: Batch,
    use: Callable[[int, slice, Float[Tensor, "rows head_index query key"]], object],
    *,
    layers: Sequence[int] | None = None,
    max_bytes: int = MAX_BYTES,
) -> None:
    """Hand on the patterns of layer after layer, in float64; rows add up to one. They are the model's to 1e-5.

    Where a constant is mixed with the softmax, a row is divided by its sum.

    One forward pass for every chunk of sequences, as far as the last layer that is wanted; nothing is unembedded. `use`
    gets the layer, which sequences, and their patterns, which it must not keep if memory counts. `max_bytes` bounds the
    patterns of a layer and what is made of them. Raises InputError where the model is too small for the batch, or
    attention is NaN or has no softmax.
    """
    check_fits(model, batch, vectors=True)
    if has_linear_attention(model):
        raise InputError("patterns are shares where there is a softmax; attention has none here")
    layers, mix = range(model.cfg.n_layers) if layers is None else sorted(layers), attention_mix(model)
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
            use(layer, rows, attention if mix == 1 else attention / attention.sum(-1, keepdim=True))

        taken = {Site(kind="pattern", layer=layer).hook: partial(take, layer=layer, rows=rows) for layer in layers}
        if not observe_run(model, batch.inputs[rows], taken):
            hooks = [(name, lambda activation, hook, note=note: note(activation)) for name, note in taken.items()]
            with evaluation_mode(model):
                model.run_with_hooks(batch.inputs[rows], fwd_hooks=hooks, stop_at_layer=layers[-1] + 1)
