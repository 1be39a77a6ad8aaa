"""Activation patching of every cell of a grid, in both directions, with several metrics per forward pass.

A cell is one choice along every axis that is swept; along any other axis all of the activation is patched at once.
Prompts and cells are cut into chunks that stay within a byte budget. Every model can be patched through its hooks: the
prompts are repeated once per cell, and each repetition is patched at its own cell, after the hooks that are already on
the model. Causal models of the engine that carry no hooks are continued from the changed residual stream, the fast way.
Both give the same numbers.

A patch adds to the stream what follows from the activations of the two runs alone. An activation that is part of the
stream adds the difference of the two runs. A neuron adds the difference of its output times its output weights. A patch
inside a head changes its output z at some queries, and W_O carries that to the stream. Heads of one layer do not act on
each other, so each is taken by itself. Cells are grouped by the first position that they change and run in chunks,
across layers. Cells whose activation is bit for bit the same in both runs, or that no position that is read can see,
are not run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby, product
from typing import Any, Literal, get_args

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.dictionary_places import n_neurons, site_layers
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import ATTENTION, BY_HEAD, BY_NEURON, EMBEDDINGS, Kind, Site
from mnemoscope.engine.block import Attention
from mnemoscope.engine.transformer import Transformer
from mnemoscope.interventions.feature_cells import patched_features
from mnemoscope.interventions.graph import n_kv_heads
from mnemoscope.interventions.measurement import (
    Chunk,
    PatchedLogits,
    Plan,
    SweepQuestion,
    SweepResult,
    measure_sweep,
    plan_recorded_runs,
)
from mnemoscope.interventions.reading import pick_columns, unembed_only
from mnemoscope.interventions.recordings import Place, RecordedRun, record_run, repeat_rows
from mnemoscope.interventions.streams import LASTING, Stream, entry_point, plan_continued_runs
from mnemoscope.interventions.writing import check_written, complete_hooks

AXES: dict[Kind, tuple[str, ...]] = {
    **dict.fromkeys((*EMBEDDINGS, "resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out", "error"), ("pos",)),
    **dict.fromkeys(("q", "k", "v", "z"), ("pos", "head")),
    **dict.fromkeys(BY_NEURON, ("pos", "neuron")),
    **dict.fromkeys(ATTENTION, ("head", "query", "key")),
}
"""After the layer: by what an activation can be divided."""
KINDS: tuple[Kind, ...] = tuple(AXES)
"""Kinds that can be patched; `result` is missing because patching z has the same effect."""

Cell = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Cells of one kind of activation; `labels` are the numbers along each swept axis."""

    kind: Kind
    axes: tuple[str, ...]
    labels: tuple[tuple[int, ...], ...]

    @property
    def by_axis(self) -> dict[str, tuple[int, ...]]:
        """The numbers along each axis by its name."""
        return dict(zip(self.axes, self.labels, strict=True))

    @cached_property
    def cells(self) -> list[Cell]:
        """Every cell, the last axis running fastest."""
        return list(product(*self.labels))

    @property
    def layers(self) -> tuple[int | None, ...]:
        """The layers that are patched; one None for embeddings."""
        return self.by_axis.get("layer", (None,))

    @property
    def position_axis(self) -> str | None:
        """The swept axis that gives the first position which a cell can change; None if there is none."""
        return next((axis for axis in ("pos", "query") if axis in self.axes), None)

    def number_along(self, cell: Cell, axis: str | None) -> int | None:
        """The number of a cell along an axis; None along one that is not swept."""
        return cell[self.axes.index(axis)] if axis in self.axes else None

    def hook(self, layer: int | None) -> str:
        """The hook point of the activation in a layer."""
        return Site(kind=self.kind, layer=layer).hook

    def index(self, cell: Cell) -> tuple[int | slice, ...]:
        """The index of a cell in an activation, on the axes after the batch."""
        places = (self.number_along(cell, axis) for axis in AXES[self.kind])
        return tuple(slice(None) if place is None else place for place in places)


def grid(
    model: HookedModel, kind: Kind, over: Sequence[str], *, n_pos: int, only: Mapping[str, Sequence[int]] | None = None
) -> Grid:
    """The grid of a sweep, for `result` that of z; axes not in `only` are complete."""
    kind, only = "z" if kind == "result" else kind, only or {}
    one_of("kind", kind, KINDS)
    own = AXES[kind] if kind in EMBEDDINGS else ("layer", *AXES[kind])
    wrong = [axis for axis in over if axis not in own]
    if wrong or len(set(over)) < len(over):
        raise InputError(f"over must name axes of {kind}, each once: {', '.join(own)}; got {', '.join(over)}")
    if kind not in EMBEDDINGS and "layer" not in over:
        raise InputError(f"over must name layer: every cell lies in one layer; got {', '.join(over) or 'nothing'}")
    if "key" in over and "query" not in over:
        raise InputError("over must name query where it names key: a key is swept for each query")
    for axis in only:
        one_of("an axis in only", axis, over)
    n_heads = n_kv_heads(model) if kind in ("k", "v") else model.cfg.n_heads
    layers = site_layers(model, kind)
    widths = {n_neurons(model, kind, layer) for layer in only.get("layer", layers) if layer in layers}
    if kind == "feature" and len(widths) > 1:
        raise InputError("dictionaries that are swept together must have as many features; name one layer in only")
    sizes = {"head": n_heads, "neuron": max(widths, default=0), **dict.fromkeys(("pos", "query", "key"), n_pos)}
    numbers = {"layer": layers, **{axis: range(size) for axis, size in sizes.items()}}
    labels = tuple(_labels(axis, numbers[axis], only.get(axis)) for axis in over)
    return Grid(kind=kind, axes=tuple(over), labels=labels)


def _labels(axis: str, numbers: Sequence[int], wanted: Sequence[int] | None) -> tuple[int, ...]:
    if wanted is None:
        return tuple(numbers)
    if not {*wanted} <= {*numbers} or not wanted or len(set(wanted)) < len(wanted):
        first, last = numbers[0], numbers[-1]
        allowed = f"numbers from {first} to {last}" if len(numbers) == last - first + 1 else f"some of {list(numbers)}"
        raise InputError(f"only[{axis!r}] must list {allowed}, each once; got {list(wanted)}")
    return tuple(wanted)


def plan_hooks(question: SweepQuestion, grid: Grid, *, reason: str) -> Plan[RecordedRun]:
    """Plan a sweep through hooks; `reason` says in the result why not the fast way."""
    model, sizes = question.model, question.sizes
    check_written(model, grid.kind, grid.layers)

    def patched(chunk: Chunk[RecordedRun], room: int) -> Iterator[PatchedLogits]:
        n_cells = max(1, room // (len(chunk.batch) * sizes.hooked_pass_bytes(everywhere=False)))
        for start in range(0, len(grid.cells), n_cells):
            some = range(start, min(start + n_cells, len(grid.cells)))
            hooks = [
                (grid.hook(layer), _hook(grid, some, layer, chunk.source[grid.kind, layer]))
                for layer in {grid.number_along(grid.cells[number], "layer") for number in some}
            ]
            tokens = repeat_rows(chunk.batch.inputs, len(some))
            with complete_hooks(model, hooks) as completed, unembed_only(model, pick_columns(question.read)) as picked:
                logits = picked(model.run_with_hooks(tokens, fwd_hooks=completed))
            yield PatchedLogits(cells=some, first=0, logits=logits.unflatten(0, (len(some), -1)))

    places: set[Place] = {(grid.kind, layer) for layer in grid.layers}
    run = partial(record_run, model, places=places, read=question.read)
    return plan_recorded_runs(question, places, run, patched, method=f"hooks ({reason})")


def _hook(grid: Grid, chunk: Sequence[int], layer: int | None, source: Tensor) -> Callable[..., Tensor]:
    """A hook that patches the repetitions whose cell lies in `layer`."""

    def patch(activation: Tensor, hook: Any) -> Tensor:
        shape = activation.shape[1:]
        result = activation.expand(len(chunk) * len(source), *shape).clone()
        for block, number in zip(result.split(len(source)), chunk, strict=True):
            cell = grid.cells[number]
            if grid.number_along(cell, "layer") == layer:
                place = (slice(None), *grid.index(cell))
                block[place] = source[place]
        return result

    return patch


_READS: Mapping[Kind, tuple[Kind, ...]] = {
    "q": ("q", "k", "v"),
    "k": ("q", "k", "v"),
    "v": ("v", "pattern"),
    "pattern": ("pattern", "v"),
    "scores": ("scores", "v"),
}

HeadActivations = Mapping[Kind, Tensor]
"""Activations of the heads of a layer: `prompt head_index pos d_head`, or `prompt head_index query key`."""


SweepMethod = Literal["auto", "stream", "hooks"]


def sweep(question: SweepQuestion, grid: Grid, *, method: SweepMethod = "auto") -> SweepResult:
    """Patch every cell of a grid; `stream` or `hooks` insist on one method, which may be refused."""
    return measure_sweep(question, len(grid.cells), plan_sweep(question, grid, method))


@torch.no_grad()
def plan_sweep(question: SweepQuestion, grid: Grid, method: SweepMethod) -> Plan[RecordedRun]:
    """Choose the fast way where the model allows it, and the size of chunks."""
    one_of("method", method, get_args(SweepMethod))
    weights = "asked for" if method == "hooks" else question.weights
    if isinstance(weights, Transformer) and grid.kind == "pre" and weights.is_gated:
        weights = "in a gated MLP the effect of pre depends on what it gates"
    if isinstance(weights, Transformer):

        def patched(run: Stream, chunk: Chunk[RecordedRun], n_cells: Callable[[int], int]) -> Iterator[PatchedLogits]:
            return CellPatching(run=run, source=chunk.source, grid=grid).patched_logits(n_cells)

        return plan_continued_runs(
            question, weights, places_to_record(weights, grid), patched, question.sizes.continued_cell_bytes
        )
    if method == "stream":
        raise InputError(f"method must be 'auto' or 'hooks' for this model, because {weights}; got 'stream'")
    return plan_hooks(question, grid, reason=weights)


def places_to_record(weights: Transformer, grid: Grid) -> set[Place]:
    """The places to record in both runs to patch the cells of a grid."""
    patched: set[Place] = {(kind, layer) for layer in grid.layers for kind in _READS.get(grid.kind, (grid.kind,))}
    stream: set[Place] = {entry_point(weights, grid.kind, layer)[1] for layer in grid.layers}
    past: set[Place] = {(kind, layer) for layer in range(len(weights.blocks)) for kind in LASTING}
    return {*patched, *stream, *past, ("resid_pre", 0)}


@dataclass(frozen=True, kw_only=True)
class CellPatching:
    """The cells of a grid patched each by itself, on all prompts of a run; it and `source` are recorded at `places`."""

    run: Stream
    source: RecordedRun
    grid: Grid

    @torch.no_grad()
    def patched_logits(self, n_cells: Callable[[int], int]) -> Iterator[PatchedLogits]:
        """Logits of every cell that changes anything; `n_cells` says how many of one first position run at once."""
        if self.grid.kind == "feature" and "neuron" in self.grid.axes:
            yield from self._patched_features(n_cells)
            return
        for start, numbers in sorted(self._group_by_start().items()):
            read = self.run.read[self.run.read >= start]
            size = n_cells(start)
            for first in range(0, len(numbers), size):
                chunk = numbers[first : first + size]
                logits = self.run.weights.resume_from_stream(*self._changed_streams(chunk, start), self.run.past, read)
                yield PatchedLogits(cells=chunk, first=len(self.run.read) - len(read), logits=logits)

    def _patched_features(self, n_cells: Callable[[int], int]) -> Iterator[PatchedLogits]:
        """The same for single features, prompt by prompt."""
        grid, n_prompts = self.grid, len(self.run.base["resid_pre", 0])
        for layer in grid.layers:
            own = [
                (number, grid.number_along(cell, "neuron") or 0, grid.number_along(cell, "pos"))
                for number, cell in enumerate(grid.cells)
                if grid.number_along(cell, "layer") == layer
            ]
            yield from patched_features(self.run, self.source, layer or 0, own, lambda at: n_prompts * n_cells(at))

    def _group_by_start(self) -> dict[int, list[int]]:
        """Numbers of cells by the first position that they change, in the order of their layers."""
        grid, differs = self.grid, {layer: self._runs_differ(layer) for layer in self.grid.layers}
        is_local = grid.position_axis is not None and grid.kind not in LASTING  # changes the stream at one position
        by_start: dict[int, list[int]] = {}
        read = set(self.run.read.tolist())
        for number, cell in sorted(enumerate(grid.cells), key=lambda each: grid.number_along(each[1], "layer") or 0):
            layer = grid.number_along(cell, "layer")
            start = grid.number_along(cell, grid.position_axis)
            if start is None:
                start = next((pos for pos, changed in enumerate(differs[layer]) if changed), None)
            if start is None or not differs[layer][start] or start > max(read):
                continue
            if (grid.number_along(cell, "key") or 0) > start:
                continue
            at_end = entry_point(self.run.weights, grid.kind, layer)[0] >= 2 * len(self.run.weights.blocks) - 1
            if not (at_end and is_local and start not in read):
                by_start.setdefault(start, []).append(number)
        return by_start

    def _runs_differ(self, layer: int | None) -> list[bool]:
        """True at positions (or queries) where the two runs differ; equal prefixes give equal numbers, bit for bit."""
        changed = self.run.base[self.grid.kind, layer] != self.source[self.grid.kind, layer]
        axis = 2 if self.grid.kind in ATTENTION else 1
        return changed.movedim(axis, 0).flatten(1).any(1).tolist()

    def _changed_streams(self, chunk: Sequence[int], start: int) -> tuple[Tensor, list[int]]:
        """The changed stream of every cell at its point, and how many cells have entered up to each point."""
        run, grid = self.run, self.grid
        stream = run.base["resid_pre", 0][:, start:]
        residual = stream.new_empty(len(chunk), *stream.shape)
        entered = [0] * (2 * len(run.weights.blocks) + 1)
        done = 0
        for layer, numbers in groupby(chunk, lambda number: grid.number_along(grid.cells[number], "layer")):
            cells = [grid.cells[number] for number in numbers]
            point, place = entry_point(run.weights, grid.kind, layer)
            new = residual[done : done + len(cells)]
            new[:] = run.base[place][:, start:]
            added = self._change(layer, cells, start)
            new[:, :, : added.shape[2]] += added
            done += len(cells)
            entered[point:] = [done] * (len(entered) - point)
        return residual, entered

    def _change(
        self, layer: int | None, cells: Sequence[Cell], start: int
    ) -> Float[Tensor, "cell prompt changed d_model"]:
        """Changes of the stream by cells of one layer: at position (or query) `start`, or from it to the end."""
        grid, base, source = self.grid, self.run.base, self.source
        kind, patched = grid.kind, slice(start, start + 1 if grid.position_axis else None)
        if layer is None or kind not in (*BY_HEAD, *BY_NEURON):
            difference = source[kind, layer][:, patched] - base[kind, layer][:, patched]
            return difference.expand(len(cells), -1, -1, -1)
        block = self.run.weights.blocks[layer]
        if kind in BY_NEURON:
            act = block.mlp.activation if kind == "pre" and block.mlp is not None else torch.positive
            difference = act(source[kind, layer][:, patched]) - act(base[kind, layer][:, patched])
            neurons = self._cell_entries(cells, "neuron", 1, difference.device)
            # a neuron is a part of width 1
            return _sum_outputs(difference.mT[..., None], self._written(layer)[:, None], neurons)
        attn = block.attention
        heads = self._cell_entries(cells, "head", attn.n_sharing if kind in LASTING else 1, attn.w_o.device)
        new, old = (_heads(run, kind, layer, attn.n_sharing) for run in (source, base))
        if kind not in ATTENTION:
            return _sum_outputs(_z_change(kind, new, old, patched, attn), attn.w_o, heads)
        after, before, v = new[kind][:, :, patched], old[kind][:, :, patched], old["v"]
        if "key" in grid.axes:
            heads = torch.arange(len(attn.w_o), device=v.device).expand(len(cells), -1) if heads is None else heads
            after, before, v = after[:, heads], before[:, heads], v[:, heads]
            keys = torch.tensor([grid.number_along(cell, "key") for cell in cells], device=v.device)
            after = torch.where(torch.arange(v.shape[-2], device=v.device) == keys[:, None, None, None], after, before)
        if kind == "scores":
            after, before = attn.pattern(after), attn.pattern(before)
        return _sum_outputs((after - before) @ v, attn.w_o, heads)

    def _written(self, layer: int) -> Float[Tensor, "neuron d_model"]:
        """The directions that neurons of a layer write, or features."""
        if self.grid.kind == "feature":
            return next(each.w_dec for each in self.run.weights.dictionaries if each.layer == layer)
        mlp = self.run.weights.blocks[layer].mlp
        assert mlp is not None
        return mlp.w_out

    def _cell_entries(
        self, cells: Sequence[Cell], axis: str, n_each: int, device: torch.device
    ) -> Int[Tensor, "cell each"] | None:
        """The heads or neurons of each cell: one, or all that share keys and values; None where one cell holds all."""
        if axis not in self.grid.axes:
            return None
        first = torch.tensor([self.grid.number_along(cell, axis) for cell in cells], device=device)
        return first[:, None] * n_each + torch.arange(n_each, device=device)


def _sum_outputs(
    parts: Float[Tensor, "prompt part pos width"] | Float[Tensor, "prompt cell each pos width"],
    weight: Float[Tensor, "part width d_model"],
    chosen: Int[Tensor, "cell each"] | None,
) -> Float[Tensor, "cell prompt pos d_model"]:
    """Sum over the parts of each cell of their output to the stream; `parts` has all parts, or those of each cell."""
    if chosen is None:
        parts, weight = parts[:, None], weight[None]
    else:
        parts, weight = parts if parts.ndim == 5 else parts[:, chosen], weight[chosen]
    return einsum(parts, weight, "prompt cell each pos width, cell each width d_model -> cell prompt pos d_model")


def _heads(run: RecordedRun, kind: Kind, layer: int, n_sharing: int) -> HeadActivations:
    """Activations of the heads of a layer that a patch needs; heads that share keys and values get a copy each."""
    found: dict[Kind, Tensor] = {}
    for name in _READS.get(kind, (kind,)):
        by_head = run[name, layer] if name in ATTENTION else run[name, layer].transpose(1, 2)
        shared = name in LASTING and n_sharing > 1
        found[name] = by_head.repeat_interleave(n_sharing, 1) if shared else by_head
    return found


def _z_change(
    kind: Kind, source: HeadActivations, base: HeadActivations, patched: slice, attn: Attention
) -> Float[Tensor, "prompt head_index changed d_head"]:
    """The change of z: at the patched positions; for k and v at all from the first patched one on."""
    later = slice(patched.start, None)
    if kind in ("z", "v"):
        difference = source[kind][:, :, patched] - base[kind][:, :, patched]
        return difference if kind == "z" else base["pattern"][:, :, later, patched] @ difference
    new = base[kind].clone()
    new[:, :, patched] = source[kind][:, :, patched]
    queries = patched if kind == "q" else later
    return _z({**base, kind: new}, queries, attn) - _z(base, queries, attn)


def _z(of: HeadActivations, queries: slice, attn: Attention) -> Float[Tensor, "prompt head_index query d_head"]:
    """Head outputs z at some queries."""
    where = torch.arange(of["k"].shape[2], device=of["k"].device)
    q, k = attn.rotate(of["q"][:, :, queries], where[queries]), attn.rotate(of["k"], where)
    return attn.attend(q, k, of["v"], where[queries])
