"""Outputs at the places that are read, with the hooks that are on a model; nothing else is unembedded.

The engine runs models that it represents, equal to the model's own pass to 1e-5 (tested). The model itself runs where
the engine does not represent it or one of its hooks, and where a gradient is needed.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mnemoscope.core.batch import Inputs
from mnemoscope.core.protocols import HookedModel, evaluation_mode
from mnemoscope.engine.architecture import hooked_points, transformer_with_points
from mnemoscope.engine.block import OutputPlaces
from mnemoscope.engine.budget import MAX_BYTES
from mnemoscope.engine.changes import Change, Changes
from mnemoscope.engine.transformer import Start, Transformer

Pick = Callable[[Tensor], Tensor]
Observers = Mapping[str, Callable[[Tensor], object]]
"""An observer of the activation of all positions at each hook point, as hooks leave it."""


@contextmanager
def unembed_only(model: HookedModel, pick: Pick) -> Iterator[Pick]:
    """Within the block, a forward pass unembeds only what `pick` leaves of the final stream, in evaluation mode.

    `pick` takes `batch pos width` to another number of rows and positions. A model without a module `unembed`, or with
    hooks there, unembeds everything. Yields a function of the model's output that picks where the model did not.
    """
    unembed, picked = getattr(model, "unembed", None), []
    if not isinstance(unembed, nn.Module) or _watched(model):
        unembed = None

    def narrow(module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not given:
            return None
        picked.append(True)
        return (pick(given[0]), *given[1:])

    with evaluation_mode(model), ExitStack() as stack:
        if unembed is not None:
            stack.callback(unembed.register_forward_pre_hook(narrow).remove)
        yield lambda output: output if picked else pick(output)


def _watched(model: HookedModel) -> bool:
    """True if hooks are on the unembedding: they may rely on every position."""
    points = getattr(model, "hook_dict", {})
    at_points = any(point.fwd_hooks for name, point in points.items() if name.startswith("unembed"))
    return at_points or bool(getattr(getattr(model, "unembed", None), "_forward_hooks", None))


def pick_columns(read: Int[Tensor, " read"]) -> Pick:
    """Pick some positions of every row."""
    return lambda stream: stream.index_select(1, read.to(stream.device))


def pick_nothing(stream: Tensor) -> Tensor:
    """Pick no position at all."""
    return stream[:, :0]


def logits_at(
    model: HookedModel,
    inputs: Inputs,
    where: Bool[Tensor, "batch pos"],
    run: Callable[[Tensor], Tensor] | None = None,
) -> Float[Tensor, "place d_vocab"]:
    """Logits, or output vectors, at some places, row by row in the order of `where.nonzero()`.

    `run` gives the output, such as the model under hooks; None: the model.
    """

    def pick(stream: Tensor) -> Tensor:
        return stream.expand(len(where), *stream.shape[1:])[where.to(stream.device)][None]

    with unembed_only(model, pick) as picked:
        return picked((run or model)(inputs))[0]


class StartCache:
    """Streams of unchanged runs, from which runs with a change in a later block are resumed.

    An unchanged run leaves the stream before each of its blocks; a run with changes leaves only the stream before the
    first changed block. All streams together take at most `max_bytes`; nothing more is kept beyond that.
    """

    def __init__(self, max_bytes: int = MAX_BYTES):
        self._max_bytes = max_bytes
        self._kept: dict[tuple[int, ...], tuple[Inputs, dict[int, Tensor]]] = {}

    def find_start(self, weights: Transformer, inputs: Inputs, changes: Changes) -> tuple[Start | None, Changes]:
        """The start of a run (None: the embedding), and its changes with those that keep streams on the way."""
        points, n_blocks = changes.by_point, len(weights.blocks)
        first = min(
            (int(point.split(".")[1]) if point.startswith("blocks.") else 0 for point in points), default=n_blocks
        )
        n_bytes = inputs.shape[0] * inputs.shape[1] * weights.w_e.shape[1] * weights.w_e.element_size()
        key = (inputs.data_ptr(), *inputs.shape)
        if first == 0 or n_bytes * n_blocks * len({*self._kept, key}) > self._max_bytes:
            return None, changes
        given, streams = self._kept.get(key, (None, {}))
        if given is None or not torch.equal(given, inputs):
            streams = {}
            self._kept[key] = inputs, streams
        earlier = [each for each in streams if each <= first] if points else []
        start = Start(layer=max(earlier), stream=streams[max(earlier)]) if earlier else None
        lacking = ({first} - streams.keys()) if points else range(1, n_blocks)
        names = {f"blocks.{each}.hook_resid_pre": each for each in lacking}
        noted = {name: partial(_record_stream, streams, each, points.get(name)) for name, each in names.items()}
        return start, Changes({**points, **noted}) if noted else changes


def _record_stream(streams: dict[int, Tensor], layer: int, change: Change | None, stream: Tensor) -> Tensor | None:
    """Keep the stream before a block, and change it."""
    streams[layer] = stream
    return None if change is None else change(stream)


def logits_by_engine(
    model: HookedModel, inputs: Inputs, where: Bool[Tensor, "batch pos"], *, starts: StartCache | None = None
) -> Float[Tensor, "place d_vocab"]:
    """`logits_at`, equal to 1e-5, with less work where the engine represents the model.

    Results that are compared with each other should come from one of the two. `starts` holds streams of unchanged runs,
    with the weights as they are; None: runs start at the embedding.
    """
    outputs = outputs_at(model, inputs, where, starts=starts)
    return logits_at(model, inputs, where) if outputs is None else outputs


def outputs_at(
    model: HookedModel,
    inputs: Inputs,
    where: Bool[Tensor, "batch pos"],
    *,
    watched: Observers | None = None,
    starts: StartCache | None = None,
) -> Float[Tensor, "place d_vocab"] | None:
    """Logits at some places, row by row, with observers on the way; None if the model has to run itself.

    `starts` is as for `logits_directly`.
    """
    if (found := _prepare_engine(model, watched or {})) is None:
        return None
    weights, changes = found
    inputs, where = (x.to(weights.b_u.device) for x in (inputs, where))
    start, changes = (None, changes) if starts is None else starts.find_start(weights, inputs, changes)
    return weights(inputs, OutputPlaces.from_mask(where), changes, start=start)


def observe_run(model: HookedModel, inputs: Inputs, watched: Observers) -> bool:
    """Run the model as far as something is observed; False if the model has to run itself."""
    if (found := _prepare_engine(model, watched)) is None:
        return False
    weights, changes = found
    weights.observe(inputs.to(weights.b_u.device), changes)
    return True


def _prepare_engine(model: HookedModel, watched: Observers) -> tuple[Transformer, Changes] | None:
    """The engine's transformer with the model's hooks and the observers; None if the model has to run itself."""
    if torch.is_grad_enabled() or (hooked := hooked_points(model)) is None:
        return None
    points = {*hooked, *watched}
    if (weights := transformer_with_points(model, points)) is None:
        return None
    return weights, Changes(
        {point: partial(_apply_and_observe, model.hook_dict[point], watched.get(point)) for point in points}
    )


def _apply_and_observe(point: Any, observe: Callable[[Tensor], object] | None, activation: Tensor) -> Tensor:
    """Apply the change at a hook point to its activation."""
    if point._forward_hooks:
        activation = point(activation)
    if observe is not None:
        observe(activation)
    return activation
