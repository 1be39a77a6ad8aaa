"""Activations of a model, recorded without any intervention of ours; hooks that are on the model take part."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch, Inputs
from mnemoscope.core.errors import InputError
from mnemoscope.core.named import Named
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import ATTENTION, BY_HEAD, BY_NEURON, Kind, Site
from mnemoscope.interventions.direct import Watched, outputs_at, watch
from mnemoscope.interventions.reading import (
    MAX_BYTES,
    Pick,
    at_columns,
    float_bytes,
    nowhere,
    rows_at_once,
    unembedding,
)

Place = tuple[Kind, int | None]
"""A kind of activation and its layer."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A recorded forward pass.

    Attributes:
        activations: By place, or by hook point, batch axis first.
        logits: At the positions that metrics read.
    """

    activations: Mapping[Any, Tensor]
    logits: Float[Tensor, "batch read d_vocab"]

    def __getitem__(self, place: Place | str) -> Tensor:
        return self.activations[place]


def recorded_run(
    model: HookedModel,
    tokens: Inputs,
    places: Collection[Place],
    read: Int[Tensor, " read"],
    *,
    directly: bool = False,
) -> Run:
    """Run the model.

    Args:
        model: Any hooked model.
        tokens: Its input.
        places: What to record.
        read: Positions whose logits are kept.
        directly: As for `forward`.

    Raises:
        InputError: The model has no such place, or its logits hold NaN.
    """
    names = {place: Site(kind=place[0], layer=place[1]).hook for place in places}
    found, logits = forward(model, tokens, {*names.values()}, read, directly=directly)
    missing = sorted((name, kind) for (kind, _), name in names.items() if name not in found)
    if missing:
        name, kind = missing[0]
        raise InputError(f"the model has no {kind} (hook point {name}); choose another kind of activation")
    return Run(activations={place: found[name] for place, name in names.items()}, logits=logits)


@torch.no_grad()
def forward(
    model: HookedModel,
    tokens: Inputs,
    names: Collection[str],
    read: Int[Tensor, " read"],
    *,
    directly: bool = False,
) -> tuple[dict[str, Tensor], Float[Tensor, "batch read d_vocab"]]:
    """The activations at those hook points that the model has, and the logits at some positions.

    Args:
        model: Any hooked model.
        tokens: Its input.
        names: The hook points.
        read: The positions, in ascending order.
        directly: Whether equal to 1e-5 will do, in less time (`direct`).

    Raises:
        InputError: The logits hold NaN.
    """
    found, logits = (_directly(model, tokens, names, read) if directly else None) or _cached(
        model, tokens, names, at_columns(read)
    )
    check_numbers(logits)
    return found, logits


def _directly(
    model: HookedModel, tokens: Inputs, names: Collection[str], read: Int[Tensor, " read"]
) -> tuple[dict[str, Tensor], Tensor] | None:
    """What `forward` gives; None if the model has to be run itself."""
    found: dict[str, Tensor] = {}
    where = torch.zeros(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
    where[:, read.to(tokens.device)] = True
    logits = outputs_at(model, tokens, where, watched=_keeping(found, names))
    return None if logits is None else (found, logits.unflatten(0, (len(tokens), -1)))


def _keeping(found: dict[str, Tensor], names: Collection[str]) -> Watched:
    """What puts the activations at hook points into a dictionary."""

    def keep(name: str, activation: Tensor) -> None:
        found[name] = activation.contiguous()  # a view would hold on to what it is of

    return {name: partial(keep, name) for name in names}


def check_numbers(logits: Tensor) -> None:
    """Refuse logits that hold NaN.

    Raises:
        InputError: They do.
    """
    if logits.isnan().any():
        raise InputError("the model's logits hold NaN; check its weights, or take an earlier checkpoint")


@torch.no_grad()
def recorded(
    model: HookedModel,
    batch: Batch,
    names: Collection[str],
    *,
    max_bytes: int | None = None,
    directly: bool = False,
) -> dict[str, Tensor]:
    """The activations at hook points on a batch, in forward passes of bounded size; nothing is unembedded.

    Args:
        model: Any hooked model.
        batch: The sequences.
        names: Hook points.
        max_bytes: Of a forward pass. None: 256 MiB.
        directly: Whether equal to 1e-5 will do, in less time (`direct`).
    """
    size = rows_at_once(model, batch.inputs.shape[1], max_bytes=max_bytes)
    record = _watched if directly else _as_the_model
    parts = [record(model, inputs, names) for inputs in batch.inputs.split(size)]
    return {name: torch.cat([part[name] for part in parts]) for name in names}


def _as_the_model(model: HookedModel, tokens: Tensor, names: Collection[str]) -> dict[str, Tensor]:
    return _cached(model, tokens, names, nowhere)[0]


def _watched(model: HookedModel, tokens: Tensor, names: Collection[str]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    kept = watch(model, tokens, _keeping(found, names))
    return found if kept else _as_the_model(model, tokens, names)


def _cached(model: HookedModel, tokens: Tensor, names: Collection[str], pick: Pick) -> tuple[dict[str, Tensor], Tensor]:
    with unembedding(model, pick) as picked:
        output, cache = model.run_with_cache(tokens, names_filter=lambda name: name in names)
        logits = picked(output)
    # one row may stand for all
    found = {name: cache[name].expand(len(tokens), *cache[name].shape[1:]) for name in names if name in cache}
    return found, logits


def repeated(rows: Tensor, n: int) -> Tensor:
    """All rows once more after the last one, and so on, `n` times."""
    return rows.repeat(n, *(1,) * (rows.ndim - 1))


def read(site: Site) -> str:
    """The hook point that has the numbers of a site; those of `result` are computed from z."""
    return site.hook.replace("hook_attn_out", "attn.hook_z") if site.kind == "result" else site.hook


def record_bytes(model: HookedModel, batch: Batch, sites: Iterable[Site]) -> int:
    """Of the activations of some sites on a batch, estimated from above, while they are put together."""
    cfg, (n, n_pos) = model.cfg, batch.inputs.shape[:2]
    kinds = {read(site): site.kind for site in sites}.values()
    heads, attention = cfg.n_heads * cfg.d_head, cfg.n_heads * n_pos
    width = {
        **dict.fromkeys(BY_HEAD, heads),
        **dict.fromkeys(ATTENTION, attention),
        **dict.fromkeys(BY_NEURON, cfg.d_mlp),
    }
    return 3 * float_bytes(model) * n * n_pos * sum(int(width.get(kind, cfg.d_model)) for kind in kinds)


def results(model: HookedModel, layer: int, z: Tensor) -> Tensor:
    """What each head adds to the residual stream, `batch pos head_index d_model`, from `z`."""
    return torch.einsum("bphd,hdm->bphm", z, model.blocks[layer].attn.W_O)


class Recordings:
    """What a model's activations are on some batches; kept between runs, they spare a forward pass each.

    Args:
        model: Whose.
        max_bytes: Of what is kept, and of a forward pass; beyond it those that were asked for last are kept, and others
            recorded again when they are needed. None: 256 MiB.
        directly: As for `recorded`, where runs are by `run_at`, which is no more exact itself.
    """

    def __init__(self, model: HookedModel, *, max_bytes: int | None = None, directly: bool = False):
        self._model, self._max_bytes = model, MAX_BYTES if max_bytes is None else max_bytes
        self._directly = directly
        self._kept: dict[tuple[Named[Batch], str], Tensor] = {}

    @torch.no_grad()
    def prepare(self, needs: Iterable[tuple[Named[Batch], Site]]) -> None:
        """Record the sites on the batches, with one forward pass a batch."""
        wanted = dict.fromkeys((source, read(site)) for source, site in needs)
        missing: dict[Named[Batch], set[str]] = {}
        for source, name in wanted:
            if (source, name) not in self._kept:
                missing.setdefault(source, set()).add(name)
        if missing:
            self._make_room(wanted, missing)
        for source, names in missing.items():
            found = recorded(self._model, source.value, names, max_bytes=self._max_bytes, directly=self._directly)
            self._kept.update({(source, name): activation for name, activation in found.items()})

    def _make_room(
        self, wanted: Collection[tuple[Named[Batch], str]], missing: Mapping[Named[Batch], Collection[str]]
    ) -> None:
        """Let go of what was recorded first, for records that are taken to be as large as the largest there is."""
        n_new = sum(len(names) for names in missing.values())
        for key in [key for key in self._kept if key not in wanted]:
            sizes = [activation.nbytes for activation in self._kept.values()]
            if sum(sizes) + n_new * max(sizes) <= self._max_bytes:
                return
            del self._kept[key]

    def of(self, source: Named[Batch], site: Site) -> Tensor:
        """The activation at a site on a batch, all heads and positions of it."""
        self.prepare([(source, site)])
        activation = self._kept[source, read(site)]
        if site.kind == "result" and site.layer is not None:
            return results(self._model, site.layer, activation)
        return activation
