"""The cells of a sweep, and patching them through hooks, for every hooked model.

A cell is one choice along every axis that is swept; along any other axis all of the activation is patched at once. The
grid knows where in an activation tensor a cell lies. Through hooks the prompts are repeated once per cell, and each
repetition is patched at its own cell, in whatever layer. Hooks already on the model act first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import Any

from torch import Tensor

from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import ATTENTION, EMBEDDINGS, Kind, Site
from mnemoscope.interventions.edges.graph import n_kv_heads
from mnemoscope.interventions.patching.measuring import Chunk, Patched, Plan, Question, recorded_plan
from mnemoscope.interventions.reading import pick_columns, unembedding
from mnemoscope.interventions.recordings import Place, RecordedRun, record_run, repeat_rows
from mnemoscope.interventions.writing import check_written, writing

AXES: dict[Kind, tuple[str, ...]] = {
    **dict.fromkeys((*EMBEDDINGS, "resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out"), ("pos",)),
    **dict.fromkeys(("q", "k", "v", "z"), ("pos", "head")),
    **dict.fromkeys(("pre", "post"), ("pos", "neuron")),
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
        return self.labels[self.axes.index("layer")] if "layer" in self.axes else (None,)

    @property
    def position_axis(self) -> str | None:
        """The swept axis that gives the first position which a cell can change; None if there is none."""
        return next((axis for axis in ("pos", "query") if axis in self.axes), None)

    def of(self, cell: Cell, axis: str | None) -> int | None:
        """The number of a cell along an axis; None along one that is not swept."""
        return cell[self.axes.index(axis)] if axis in self.axes else None

    def hook(self, layer: int | None) -> str:
        """The hook point of the activation in a layer."""
        return Site(kind=self.kind, layer=layer).hook

    def index(self, cell: Cell) -> tuple[int | slice, ...]:
        """The index of a cell in an activation, on the axes after the batch."""
        places = (self.of(cell, axis) for axis in AXES[self.kind])
        return tuple(slice(None) if place is None else place for place in places)


def grid(
    model: HookedModel, kind: Kind, over: Sequence[str], *, n_pos: int, only: Mapping[str, Sequence[int]] | None = None
) -> Grid:
    """The grid of a sweep over some axes of an activation; for `result` it is that of z, from which `result` follows.

    Every kind but the embeddings has the axis `layer`, which must be swept. `only` gives the numbers along an axis; an
    axis that it does not name is swept completely. Raises InputError where the kind has no such axis, or a number lies
    outside.
    """
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
    sizes = {"layer": model.cfg.n_layers, "head": n_heads, "neuron": model.cfg.d_mlp}
    sizes |= dict.fromkeys(("pos", "query", "key"), n_pos)
    labels = tuple(_labels(axis, sizes[axis], only.get(axis)) for axis in over)
    return Grid(kind=kind, axes=tuple(over), labels=labels)


def _labels(axis: str, size: int, wanted: Sequence[int] | None) -> tuple[int, ...]:
    if wanted is None:
        return tuple(range(size))
    outside = [number for number in wanted if not 0 <= number < size]
    if outside or not wanted or len(set(wanted)) < len(wanted):
        raise InputError(f"only[{axis!r}] must list numbers from 0 to {size - 1}, each once; got {list(wanted)}")
    return tuple(wanted)


def hooks_plan(question: Question, grid: Grid, *, reason: str) -> Plan[RecordedRun]:
    """Plan a sweep through hooks; `reason` says in the result why not the fast way."""
    model, sizes = question.model, question.sizes
    check_written(model, grid.kind, grid.layers)

    def patched(chunk: Chunk[RecordedRun], room: int) -> Iterator[Patched]:
        n_cells = max(1, room // (len(chunk.batch) * sizes.hooked(everywhere=False)))
        for start in range(0, len(grid.cells), n_cells):
            some = range(start, min(start + n_cells, len(grid.cells)))
            hooks = [
                (grid.hook(layer), _hook(grid, some, layer, chunk.source[grid.kind, layer]))
                for layer in {grid.of(grid.cells[number], "layer") for number in some}
            ]
            tokens = repeat_rows(chunk.batch.inputs, len(some))
            with writing(model, hooks) as completed, unembedding(model, pick_columns(question.read)) as picked:
                logits = picked(model.run_with_hooks(tokens, fwd_hooks=completed))
            yield Patched(cells=some, first=0, logits=logits.unflatten(0, (len(some), -1)))

    places: set[Place] = {(grid.kind, layer) for layer in grid.layers}
    run = partial(record_run, model, places=places, read=question.read)
    return recorded_plan(question, places, run, patched, method=f"hooks ({reason})")


def _hook(grid: Grid, chunk: Sequence[int], layer: int | None, source: Tensor) -> Callable[..., Tensor]:
    """A hook that patches the repetitions whose cell lies in `layer`."""

    def patch(activation: Tensor, hook: Any) -> Tensor:
        shape = activation.shape[1:]
        result = activation.expand(len(chunk) * len(source), *shape).clone()
        for block, number in zip(result.split(len(source)), chunk, strict=True):
            cell = grid.cells[number]
            if grid.of(cell, "layer") == layer:
                place = (slice(None), *grid.index(cell))
                block[place] = source[place]
        return result

    return patch
