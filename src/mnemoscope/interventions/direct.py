"""Runs of a hooked model by the engine, with the hooks that are on it; equal to the model's own to 1e-5 (tested).

A model or a hook that the engine does not represent is run by the model itself; so is whatever needs a gradient.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.core.batch import Inputs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.engine.architecture import hooked_points, of_model
from mnemoscope.engine.block import Read
from mnemoscope.engine.budget import MAX_BYTES
from mnemoscope.engine.changes import BEFORE_BLOCKS, IN_BLOCK, Changes
from mnemoscope.engine.transformer import Start, Transformer
from mnemoscope.interventions.reading import logits_at

Watched = Mapping[str, Callable[[Tensor], object]]
"""By hook point an observer of the activation of all positions there, as hooks leave it."""


class Starts:
    """Streams of unchanged runs, from which runs with a change in a later block are resumed.

    An unchanged run leaves the stream before each of its blocks; without one, streams are run as they are needed.

    Args:
        max_bytes: Of all streams, beyond which nothing more is kept.
    """

    def __init__(self, max_bytes: int = MAX_BYTES):
        self._max_bytes = max_bytes
        self._kept: dict[tuple[int, ...], tuple[Inputs, dict[int, Tensor]]] = {}

    def before(self, weights: Transformer, inputs: Inputs, points: Iterable[str]) -> Start | None:
        """The start before the first block with a hook; None where nothing is gained, or it takes too many bytes."""
        first = min((int(point.split(".")[1]) if point.startswith("blocks.") else 0 for point in points), default=0)
        if first == 0 or (streams := self._streams(weights, inputs)) is None:
            return None
        layer = max((each for each in streams if each <= first), default=None)
        start = weights.resumable(inputs, first, None if layer is None else Start(layer=layer, stream=streams[layer]))
        streams[first] = start.stream
        return start

    def noting(self, weights: Transformer, inputs: Inputs) -> Changes:
        """Observers that keep the streams of an unchanged run."""
        if (streams := self._streams(weights, inputs)) is None:
            return Changes({})
        layers = range(1, len(weights.blocks))
        return Changes({f"blocks.{layer}.hook_resid_pre": partial(streams.__setitem__, layer) for layer in layers})

    def _streams(self, weights: Transformer, inputs: Inputs) -> dict[int, Tensor] | None:
        """The streams of these inputs by block; None if those of all blocks take too many bytes."""
        key = (inputs.data_ptr(), *inputs.shape)
        n_bytes = inputs.shape[0] * inputs.shape[1] * weights.w_e.shape[1] * weights.w_e.element_size()
        if n_bytes * len(weights.blocks) * len({*self._kept, key}) > self._max_bytes:
            return None
        given, streams = self._kept.get(key, (None, {}))
        if given is None or not torch.equal(given, inputs):
            streams = {}
            self._kept[key] = inputs, streams
        return streams


def logits_directly(
    model: HookedModel, inputs: Inputs, where: Bool[Tensor, "batch pos"], *, starts: Starts | None = None
) -> Float[Tensor, "place d_vocab"]:
    """`logits_at`, which it equals to 1e-5, with less work where the engine represents the model.

    Results that are compared with each other should come from one of the two.

    Args:
        model: Any hooked model.
        inputs: Tokens or vectors.
        where: The places.
        starts: Where unchanged runs of the model stand, its weights as they are; none: runs start at the embedding.
    """
    outputs = outputs_at(model, inputs, where, starts=starts)
    return logits_at(model, inputs, where) if outputs is None else outputs


def outputs_at(
    model: HookedModel,
    inputs: Inputs,
    where: Bool[Tensor, "batch pos"],
    *,
    watched: Watched | None = None,
    starts: Starts | None = None,
) -> Float[Tensor, "place d_vocab"] | None:
    """Logits at some places, row by row; None if the model has to be run itself.

    Args:
        model: Any hooked model.
        inputs: Tokens or vectors.
        where: The places.
        watched: Observers of activations on the way.
        starts: As for `logits_directly`.
    """
    if (found := _ready(model, watched or {})) is None:
        return None
    weights, changes = found
    inputs, where = (x.to(weights.b_u.device) for x in (inputs, where))
    start = None if starts is None else starts.before(weights, inputs, changes.by_point)
    if starts is not None and not changes.by_point:
        changes = starts.noting(weights, inputs)
    return weights(inputs, Read.places(where), changes, start=start)


def watch(model: HookedModel, inputs: Inputs, watched: Watched) -> bool:
    """Run the model as far as something is observed; False if the model has to be run itself.

    Arguments as for `outputs_at`.
    """
    if (found := _ready(model, watched)) is None:
        return False
    weights, changes = found
    weights.observe(inputs.to(weights.b_u.device), changes)
    return True


def represented(model: HookedModel, n_pos: int) -> Transformer | str:
    """The engine's transformer, from which runs can be resumed; or why there is none, in words.

    Args:
        model: Any hooked model.
        n_pos: Positions of its prompts.
    """
    weights = of_model(model)
    if isinstance(weights, str):
        return weights
    if hooked_points(model) != frozenset():
        return "it carries hooks"
    for block in weights.blocks:
        if block.attn is None or not block.attn.causal:
            return "its attention is not causal: a change acts on earlier positions too"
        if block.attn.rotary is not None and len(block.attn.rotary.cos) < n_pos:
            return "its table of rotary positions is shorter than the prompts"
    return weights


def unhooked(model: HookedModel, points: Collection[str]) -> Transformer | None:
    """The engine's transformer of a model without hooks; None if it has some, or the engine lacks one of the points."""
    return _with(model, points) if hooked_points(model) == frozenset() else None


def _ready(model: HookedModel, watched: Watched) -> tuple[Transformer, Changes] | None:
    """The engine's transformer with the model's hooks and the observers; None if the model has to be run itself."""
    if torch.is_grad_enabled() or (hooked := hooked_points(model)) is None:
        return None
    points = {*hooked, *watched}
    if (weights := _with(model, points)) is None:
        return None
    return weights, Changes({point: partial(_passes, model.hook_dict[point], watched.get(point)) for point in points})


def _with(model: HookedModel, points: Collection[str]) -> Transformer | None:
    """The engine's transformer of a model; None if it has none, or lacks one of the points."""
    blocks = {f"blocks.{index}.{name}" for index in range(model.cfg.n_layers) for name in IN_BLOCK}
    if not {*points} <= {*BEFORE_BLOCKS, *blocks} & {*model.hook_dict}:
        return None
    return None if isinstance(weights := of_model(model), str) else weights


def _passes(point: Any, observe: Callable[[Tensor], object] | None, activation: Tensor) -> Tensor:
    """Apply the change at a hook point to its activation."""
    if point._forward_hooks:
        activation = point(activation)
    if observe is not None:
        observe(activation)
    return activation
