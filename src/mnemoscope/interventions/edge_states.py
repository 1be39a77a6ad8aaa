"""Forward passes in which every edge of a model's graph carries what its state says, through hooks: many in one batch.

Each reader reads its own input, all others the residual stream as it is. A reader's input adds two sums to that of the
unchanged run: the changes of live writers, and on patched edges the difference between the other run and the unchanged
one:

    input = unchanged + Σ live (written now - written unchanged) + Σ patched (written in the other run - unchanged).

`written` records the unchanged run. The prompts are repeated once per cell. The model itself computes an input whose
edges are all live in all cells, so that cells without changes give the model's own logits. `sweep_states` reads metrics
of prompt pairs, in both directions; prompts and cells are cut into chunks that stay within a byte budget.
`edges_changed` changes edges of a single pass, for interventions.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch, Inputs
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import SHARED, Edge, Site
from mnemoscope.engine.budget import efficient_pass_bytes, n_prompts_at_once
from mnemoscope.interventions.feature_parts import refuse_features
from mnemoscope.interventions.graph import (
    EdgeLayout,
    Input,
    StateMasks,
    head_output,
    lay_out_edges,
    lay_out_states,
    reader_inputs,
    stream_name,
    writer_names,
    writer_outputs,
)
from mnemoscope.interventions.measurement import (
    CellMetrics,
    Chunk,
    PatchedLogits,
    Plan,
    SweepQuestion,
    SweepResult,
    measure_sweep,
)
from mnemoscope.interventions.reading import pick_columns, unembed_only
from mnemoscope.interventions.recordings import head_results, record_hooks, repeat_rows
from mnemoscope.interventions.writing import Hook

OutputChange = Callable[[Tensor], Tensor]
"""From all that a writer's hook point holds to the same with the writer's output changed."""
InputReader = Callable[[Sequence[Input], Tensor | None], Float[Tensor, "row pos reader d_model"]]
"""From inputs of one layer through the same of q, k and v, or from the only input of an MLP or the logits and the
stream there, to what is read."""


@contextmanager
def replace_inputs(
    model: HookedModel, wanted: Sequence[Input], read: InputReader
) -> Iterator[tuple[list[Hook], list[Hook]]]:
    """Within the block MLPs read another input, which has no hook point; heads and logits do so through the hooks.

    `wanted` are the inputs that change, in the order of reading; `read` gives their new values. Yields the hooks for
    heads, and those for the logits.
    """
    groups: dict[tuple[int | None, str | None], list[Input]] = {}
    for reader, through in wanted:
        layer = reader.layer if isinstance(reader, Site) else None
        groups.setdefault((layer, through), []).append((reader, through))
    heads: list[Hook] = []
    logits: list[Hook] = []
    with ExitStack() as stack:
        for (layer, through), own in groups.items():
            if layer is None:
                name = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
                logits.append((name, lambda stream, hook, own=own: read(own, stream)[:, :, 0]))
            elif through is None:
                norm, of_mlp = model.blocks[layer].ln2, lambda _, given, own=own: read(own, given[0])[:, :, 0]
                stack.callback(norm.register_forward_pre_hook(of_mlp).remove)
            else:
                hook = partial(_recompute_projection, block=model.blocks[layer], through=through, own=own, read=read)
                heads.append((f"blocks.{layer}.attn.hook_{through}", hook))
        yield heads, logits


def _recompute_projection(
    activation: Tensor, hook: Any, *, block: Any, through: str, own: Sequence[Input], read: InputReader
) -> Tensor:
    """Queries, keys or values of a layer, with those of some heads computed from another input."""
    heads = [site.head for site, _ in own if isinstance(site, Site)]
    shared = any(isinstance(site, Site) and site.kind in SHARED for site, _ in own)
    names = (f"{'_' * shared}{end}_{through.upper()}" for end in "Wb")  # as heads share them, they are kept once
    weight, bias = (getattr(block.attn, name)[heads] for name in names)
    result = activation.clone()
    normed = block.ln1(read(own, None))
    projected = einsum(normed, weight, "row pos head d_model, head d_model d_head -> row pos head d_head")
    result[:, :, heads] = projected + bias
    return result


@contextmanager
def change_edges(
    model: HookedModel, at: EdgeLayout, changes: Sequence[OutputChange]
) -> Iterator[tuple[list[Hook], list[Hook]]]:
    """Within the block edges carry another value, through hooks that the caller puts on the model.

    `changes` map the writer's output on each edge to its new value; those of one writer and one input act one after the
    other. Yields hooks that come before those of interventions at sites, and hooks that come after.
    """
    refuse_features(model, "an intervention at an edge acts through hooks")
    wanted = [at.inputs[row] for row in sorted({row for group in at.groups for row in group[1].tolist()})]
    written: dict[Site, Tensor] = {}
    streams: dict[int | None, Tensor] = {}

    def record(activation: Tensor, hook: Any, *, writer: Site) -> None:
        is_head = writer.kind == "z"
        written[writer] = head_results(model, writer.layer or 0, activation) if is_head else activation

    def keep(activation: Tensor, hook: Any, *, layer: int | None) -> None:
        streams[layer] = activation

    def added(place: Input) -> Tensor | float:
        """The change of an input."""
        now: dict[Site, Tensor] = {}
        for edge, change in zip(at.edges, changes, strict=True):
            if edge.reader == place[0] and edge.through in (None, place[1]):
                now[edge.writer] = change(now.get(edge.writer, written[edge.writer]))
        differences = ((writer, after - written[writer]) for writer, after in now.items())
        return sum((by.sum(2) if writer.kind == "z" else by for writer, by in differences), 0.0)

    def read(own: Sequence[Input], stream: Tensor | None) -> Tensor:
        layer = own[0][0].layer if isinstance(own[0][0], Site) else None
        return torch.stack([(streams[layer] if stream is None else stream) + added(place) for place in own], 2)

    layers = {site.layer for site, through in wanted if isinstance(site, Site) and through is not None}
    listening: list[Hook] = [
        *((writer.hook, partial(record, writer=writer)) for writer in {edge.writer for edge in at.edges}),
        *((f"blocks.{layer}.hook_resid_pre", partial(keep, layer=layer)) for layer in layers),
    ]
    with replace_inputs(model, wanted, read) as (heads, logits):
        yield heads, [*listening, *logits]


FrozenPart = Literal["attention", "layer_norm"]
FROZEN_PARTS: tuple[FrozenPart, ...] = get_args(FrozenPart)
"""Parts that keep their values of the unchanged run: attention patterns, or the scales of normalisations."""
EdgeReplacement = Literal["patch", "mean", "zero"]
"""The output that patched edges carry: the writer's in the other run, its mean over prompts, or nothing."""

CHUNK_BYTES = 2**25
"""Bytes of one forward pass on a CPU: larger ones gain nothing, unless the weights are larger."""
_ENDS: dict[FrozenPart, str] = {"attention": ".attn.hook_pattern", "layer_norm": ".hook_scale"}


@dataclass(frozen=True, kw_only=True)
class UnchangedRun:
    """A forward pass without interventions: the output of each writer, and logits at the positions that are read.

    `kept` has by hook point the stream where it is read, patterns and scales.
    """

    outputs: Float[Tensor, "writer prompt pos d_model"]
    kept: Mapping[str, Tensor]
    logits: Float[Tensor, "prompt read d_vocab"]


@torch.no_grad()
def record_writers(
    model: HookedModel,
    tokens: Inputs,
    read: Int[Tensor, " read"],
    wanted: frozenset[FrozenPart] = frozenset(),
    *,
    by_engine: bool = False,
) -> UnchangedRun:
    """Run a model that `check_graph` accepts, keeping the `wanted` patterns and scales; else as `forward`."""
    frozen = {name for name in model.hook_dict if name.endswith(tuple(_ENDS[part] for part in wanted))}
    names = {*(stream_name(model, *place) for place in reader_inputs(model)), *frozen}
    found, logits = record_hooks(model, tokens, {*names, *writer_names(model)}, read, by_engine=by_engine)
    return UnchangedRun(outputs=writer_outputs(model, found), kept={name: found[name] for name in names}, logits=logits)


class EdgeStatePass:
    """A forward pass of some prompts under each choice of states.

    `base` is the unchanged run; patterns and scales that it has kept stay as they were there. `other` is the output of
    every writer on patched edges, and `carried` holds one cell a choice.
    """

    def __init__(
        self,
        model: HookedModel,
        base: UnchangedRun,
        other: Float[Tensor, "writer prompt pos d_model"],
        carried: StateMasks,
    ):
        self.model, self.base, self.carried = model, base, carried
        self.numbers = {place: number for number, place in enumerate(carried.at.inputs)}
        self.wanted = [place for place, number in self.numbers.items() if carried.changed[number]]
        self.of_stream: dict[str, list[Input]] = {}
        for place in self.wanted:
            self.of_stream.setdefault(self._stream_of(place), []).append(place)
        self.differs = other - base.outputs
        self.written = base.outputs.new_zeros(len(carried.live), *base.outputs.shape)
        """The difference of what is written from the unchanged run."""
        self.added: tuple[str, Tensor] = ("", base.outputs)
        """A stream, and by how much it differs for all that read it, whichever asks first."""

    @torch.no_grad()
    def logits(self, tokens: Inputs, read: Int[Tensor, " read"]) -> Float[Tensor, "cell prompt read d_vocab"]:
        """Logits of the prompts at some positions."""
        model, n_cells = self.model, len(self.written)
        with (
            replace_inputs(model, self.wanted, self._read) as (heads, ends),
            unembed_only(model, pick_columns(read)) as picked,
        ):
            hooks = [*self._listening(), *heads, *ends, *self._frozen()]
            logits = picked(model.run_with_hooks(repeat_rows(tokens, n_cells), fwd_hooks=hooks))
        return logits.unflatten(0, (n_cells, len(tokens)))

    def _stream_of(self, place: Input) -> str:
        return self.carried.at.streams[self.numbers[place]]

    def _frozen(self) -> list[Hook]:
        def kept(activation: Tensor, hook: Any, *, value: Tensor) -> Tensor:
            value = repeat_rows(value, len(self.written))
            return value[:, :, None] if activation.ndim == value.ndim + 1 else value

        ends = tuple(_ENDS.values())
        return [(name, partial(kept, value=value)) for name, value in self.base.kept.items() if name.endswith(ends)]

    def _listening(self) -> Iterator[Hook]:
        """Hooks that record the output of every writer; embeddings cannot change."""
        for number, site in enumerate(self.carried.at.writers):
            if site.layer is not None:
                yield site.hook, partial(self._record, number=number, site=site)

    def _record(self, activation: Tensor, hook: Any, *, number: int, site: Site) -> None:
        output = head_output(self.model, site, activation) if site.kind == "z" else activation
        self.written[:, number] = output.unflatten(0, (len(self.written), -1)) - self.base.outputs[number]

    def _read(self, own: Sequence[Input], stream: Tensor | None) -> Float[Tensor, "row pos own d_model"]:
        """The inputs of some readers, with cells and prompts in one axis."""
        name = self._stream_of(own[0])
        together = self.of_stream[name]
        if self.added[0] != name:
            self.added = name, self._added(together)
        added = self.added[1][:, [together.index(place) for place in own]]
        return rearrange(self.base.kept[name] + added, "cell own row pos d -> (cell row) pos own d")

    def _added(self, places: Sequence[Input]) -> Float[Tensor, "cell own row pos d_model"]:
        """The difference between the inputs of some readers and those of the unchanged run."""
        numbers = [self.numbers[place] for place in places]
        live, patched = (
            states[..., numbers, :].to(self.written.dtype) for states in (self.carried.live, self.carried.patched)
        )
        if self.carried.uniform:
            live, patched, shape = live[:, 0, 0], patched[:, 0, 0], self.base.outputs.shape[1:]
            read = (live + patched).flatten(0, 1).any(0).nonzero()
            n = int(read.max()) + 1 if len(read) else 0  # no later part is read
            now = torch.bmm(live[..., :n], self.written[:, :n].flatten(2))
            then = patched[..., :n] @ self.differs[:n].flatten(1)
            return (now + then).unflatten(2, shape)
        axes = "cell row pos own writer"
        now = einsum(live, self.written, f"{axes}, cell writer row pos d -> cell own row pos d")
        return now + einsum(patched, self.differs, f"{axes}, writer row pos d -> cell own row pos d")


def sweep_states(
    question: SweepQuestion,
    edges: Sequence[Edge],
    states: Int[Tensor, "cell edge"],
    *,
    freeze: Collection[FrozenPart] = (),
    replacement: EdgeReplacement = "patch",
) -> SweepResult:
    """Measure the model with every choice of states on every pair.

    `states` are `State`s; edges that are not in `edges` are live. `freeze` keeps parts of the unchanged run (`Freeze`),
    and `replacement` says what patched edges carry (`Replacement`); a mean is over the prompts of a run, position by
    position.
    """
    model, read = question.model, question.read
    refuse_features(model, "this needs hooks at every edge")
    for part in freeze:
        one_of("freeze", part, FROZEN_PARTS)
    in_range("the number of cells", len(states), 1, float("inf"))
    at, fast = lay_out_edges(model, edges), efficient_pass_bytes(model, CHUNK_BYTES)
    n_prompts, at_work = _sizes(question, at, fast)
    others = replacement_outputs(question, replacement, n_prompts)

    def measure_chunk(chunk: Chunk[UnchangedRun]) -> Iterator[CellMetrics]:
        n_cells = max(1, min(question.max_bytes, fast) // (len(chunk.batch) * at_work))
        other = others(chunk).expand_as(chunk.source.outputs)
        for cells in torch.arange(len(states)).split(n_cells):
            asked = lay_out_states(at, chunk.batch, states[cells])
            logits = EdgeStatePass(model, chunk.base, other, asked).logits(chunk.batch.inputs, read)
            yield from chunk.measure_patched([PatchedLogits(cells=cells.tolist(), first=0, logits=logits)])

    run = partial(record_writers, model, read=read, wanted=frozenset(freeze))
    plan = Plan(method="hooks", n_prompts=n_prompts, run=run, measure_chunk=measure_chunk)
    return measure_sweep(question, len(states), plan)


def replacement_outputs(
    question: SweepQuestion, replacement: EdgeReplacement, n_prompts: int
) -> Callable[[Chunk[UnchangedRun]], Float[Tensor, "writer #prompt pos d_model"]]:
    """The output of every writer that patched edges carry, in each chunk; means are over all prompts."""
    one_of("replacement", replacement, get_args(EdgeReplacement))
    if replacement == "patch":
        return lambda chunk: chunk.source.outputs
    if replacement == "zero":
        return lambda chunk: torch.zeros_like(chunk.source.outputs)
    sides = (question.pairs.clean, question.pairs.corrupted)
    if any(side.ragged for side in sides):
        raise InputError("replacement 'mean' is over prompts, position by position, and these are padded; take 'patch'")
    means = [_mean_outputs(question.model, side, n_prompts) for side in sides]
    return lambda chunk: means[1 - chunk.into]


@torch.no_grad()
def _mean_outputs(model: HookedModel, batch: Batch, n_prompts: int) -> Float[Tensor, "writer 1 pos d_model"]:
    """The mean output of every writer over some prompts, position by position."""
    nowhere = torch.empty(0, dtype=torch.long)
    runs = (record_writers(model, tokens, nowhere, frozenset()).outputs for tokens in batch.inputs.split(n_prompts))
    return torch.stack([outputs.sum(1, keepdim=True) for outputs in runs]).sum(0) / len(batch)


def _sizes(question: SweepQuestion, at: EdgeLayout, target: int) -> tuple[int, int]:
    """The number of prompts in a chunk, and the bytes of one prompt in one cell."""
    cfg, n_pos, sizes, n_writers = question.model.cfg, question.n_pos, question.sizes, len(at.writers)
    at_once = 3 * len(at.inputs) // cfg.n_layers + n_writers
    at_work = sizes.hooked_pass_bytes(everywhere=False) + sizes.float_bytes * n_pos * cfg.d_model * at_once
    kept = sizes.float_bytes * n_pos * cfg.d_model * (3 * n_writers + 4 * cfg.n_layers)
    kept += 2 * sizes.float_bytes * n_pos * cfg.n_layers * cfg.n_heads * n_pos
    room, n = question.max_bytes, len(question.pairs)
    return n_prompts_at_once(n, working_bytes=at_work, kept_bytes=kept, max_bytes=room, target=target), at_work
