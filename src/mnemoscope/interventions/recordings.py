"""Activations of a model, recorded without interventions; hooks already on the model act."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch, Inputs, Named
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.site import Kind, Site
from mnemoscope.engine.block import OutputPlaces
from mnemoscope.engine.budget import MAX_BYTES, Sizes, float_bytes, n_rows_at_once
from mnemoscope.engine.changes import Changes
from mnemoscope.engine.transformer import Transformer
from mnemoscope.interventions.reading import (
    Pick,
    StartCache,
    observe_run,
    outputs_at,
    pick_columns,
    pick_nothing,
    unembed_only,
)

Place = tuple[Kind, int | None]
"""A kind of activation and its layer."""


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """A recorded forward pass: activations by place or by hook point, and logits at the positions that metrics read."""

    activations: Mapping[Any, Tensor]
    logits: Float[Tensor, "batch read d_vocab"]

    def __getitem__(self, place: Place | str) -> Tensor:
        return self.activations[place]


def record_run(
    model: HookedModel, tokens: Inputs, places: Collection[Place], read: Int[Tensor, " recorded_hook"]
) -> RecordedRun:
    """Record the activations at some places, and the logits at the positions `read`, which may not be NaN."""
    names = {place: Site(kind=place[0], layer=place[1]).hook for place in places}
    found, logits = record_hooks(model, tokens, {*names.values()}, read)
    return _by_place(names, found, logits)


@torch.no_grad()
def record_engine_run(
    weights: Transformer, tokens: Inputs, places: Collection[Place], read: Int[Tensor, " recorded_hook"]
) -> RecordedRun:
    """`recorded_run` by the engine; errors as there."""
    found: dict[str, Tensor] = {}
    names = {place: Site(kind=place[0], layer=place[1]).hook for place in places}
    tokens, read = (x.to(weights.b_u.device) for x in (tokens, read))
    logits = weights(tokens, OutputPlaces(columns=read), Changes(_keeping(found, {*names.values()})))
    check_no_nan(logits)
    return _by_place(names, found, logits)


def _by_place(names: Mapping[Place, str], found: Mapping[str, Tensor], logits: Tensor) -> RecordedRun:
    missing = sorted((name, kind) for (kind, _), name in names.items() if name not in found)
    if missing:
        name, kind = missing[0]
        raise InputError(f"the model has no {kind} (hook point {name}); choose another kind of activation")
    return RecordedRun(activations={place: found[name] for place, name in names.items()}, logits=logits)


@torch.no_grad()
def record_hooks(
    model: HookedModel,
    tokens: Inputs,
    names: Collection[str],
    read: Int[Tensor, " recorded_hook"],
    *,
    by_engine: bool = False,
) -> tuple[dict[str, Tensor], Float[Tensor, "batch read d_vocab"]]:
    """The activations at those hook points that the model has, and the logits at the ascending positions `read`.

    With `directly` both equal the model's own to 1e-5, in less time (`reading`). Refuses NaN in the logits.
    """
    found: dict[str, Tensor] = {}
    logits = None
    if by_engine:
        where = torch.zeros(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
        where[:, read.to(tokens.device)] = True
        logits = outputs_at(model, tokens, where, watched=_keeping(found, names))
    if logits is None:
        found, logits = _cached(model, tokens, names, pick_columns(read))
    else:
        logits = logits.unflatten(0, (len(tokens), -1))
    check_no_nan(logits)
    return found, logits


def check_no_nan(logits: Tensor) -> None:
    """Refuse logits that hold NaN."""
    if logits.isnan().any():
        raise InputError("the model's logits hold NaN; check its weights, or take an earlier checkpoint")


@torch.no_grad()
def record_activations(
    model: HookedModel, batch: Batch, names: Collection[str], *, max_bytes: int | None = None, by_engine: bool = False
) -> dict[str, Tensor]:
    """The activations at hook points on a batch, in forward passes of at most `max_bytes` (None: 256 MiB).

    Nothing is unembedded; `directly` is as for `forward`.
    """
    parts = []
    for inputs in batch.inputs.split(n_rows_at_once(model, batch.inputs.shape[1], max_bytes=max_bytes)):
        found: dict[str, Tensor] = {}
        if not by_engine or not observe_run(model, inputs, _keeping(found, names)):
            found, _ = _cached(model, inputs, names, pick_nothing)
        parts.append(found)
    return {name: torch.cat([part[name] for part in parts]) for name in names}


def _keeping(found: dict[str, Tensor], names: Collection[str]) -> dict[str, Callable[[Tensor], None]]:
    """Observers that put the activations at hook points into a dictionary."""

    def keep(name: str, activation: Tensor) -> None:
        found[name] = activation.contiguous()  # a view would hold on to what it is of

    return {name: partial(keep, name) for name in names}


def _cached(model: HookedModel, tokens: Tensor, names: Collection[str], pick: Pick) -> tuple[dict[str, Tensor], Tensor]:
    """Run the model itself: the activations at hook points, and the part of the output that `pick` takes."""
    with unembed_only(model, pick) as picked:
        output, cache = model.run_with_cache(tokens, names_filter=lambda name: name in names)
        logits = picked(output)
    # one row may stand for all
    found = {name: cache[name].expand(len(tokens), *cache[name].shape[1:]) for name in names if name in cache}
    return found, logits


def repeat_rows(rows: Tensor, n: int) -> Tensor:
    """The rows as one block, repeated `n` times."""
    return rows.repeat(n, *(1,) * (rows.ndim - 1))


def recorded_hook(site: Site) -> str:
    """The hook point to record for a site; `result` is computed from z."""
    return site.hook.replace("hook_attn_out", "attn.hook_z") if site.kind == "result" else site.hook


def record_bytes(model: HookedModel, batch: Batch, sites: Iterable[Site]) -> int:
    """Upper estimate of the bytes that the activations of some sites on a batch take while they are put together."""
    (n, n_pos), kinds = batch.inputs.shape[:2], {recorded_hook(site): site.kind for site in sites}.values()
    sizes = Sizes(cfg=model.cfg, n_pos=n_pos, n_read=0)
    return 3 * float_bytes(model) * n * n_pos * sum(sizes.activation_width(kind) for kind in kinds)


def head_results(model: HookedModel, layer: int, z: Tensor) -> Tensor:
    """The output of each head to the residual stream, `batch pos head_index d_model`, from z."""
    return torch.einsum("bphd,hdm->bphm", z, model.blocks[layer].attn.W_O)


class Recordings:
    """Activations of a model on some batches, kept so that later runs need not record them again.

    `max_bytes` bounds what is kept, and a forward pass. Beyond it the oldest recordings are dropped, and made again
    when they are needed; None: 256 MiB. Recording `directly` takes less time and is equal to 1e-5, for runs by
    `run_at`, which is no more exact itself.
    """

    def __init__(self, model: ModelLike, *, max_bytes: int | None = None, directly: bool = False):
        self._model, self._max_bytes = resolve_model(model), MAX_BYTES if max_bytes is None else max_bytes
        self._directly = directly
        self.starts = StartCache(MAX_BYTES if max_bytes is None else 0)
        """Streams of unchanged runs; none are kept where a bound on bytes is given."""
        self._kept: dict[tuple[Named[Batch], str], Tensor] = {}

    @torch.no_grad()
    def prepare(self, needs: Iterable[tuple[Named[Batch], Site]]) -> None:
        """Record the sites on the batches, with one forward pass a batch."""
        wanted = dict.fromkeys((source, recorded_hook(site)) for source, site in needs)
        missing = [key for key in wanted if key not in self._kept]
        if missing:
            self._make_room(wanted, len(missing))
        for source in dict.fromkeys(source for source, _ in missing):
            names = {name for of, name in missing if of == source}
            found = record_activations(
                self._model, source.value, names, max_bytes=self._max_bytes, by_engine=self._directly
            )
            self._kept.update({(source, name): activation for name, activation in found.items()})

    def _make_room(self, wanted: Collection[tuple[Named[Batch], str]], n_new: int) -> None:
        """Drop the oldest recordings; each new one is taken to be as large as the largest of those kept."""
        for key in [key for key in self._kept if key not in wanted]:
            sizes = [activation.nbytes for activation in self._kept.values()]
            if sum(sizes) + n_new * max(sizes) <= self._max_bytes:
                return
            del self._kept[key]

    def of(self, source: Named[Batch], site: Site) -> Tensor:
        """The activation at a site on a batch, with all its heads and positions."""
        self.prepare([(source, site)])
        activation = self._kept[source, recorded_hook(site)]
        if site.kind == "result" and site.layer is not None:
            return head_results(self._model, site.layer, activation)
        return activation
