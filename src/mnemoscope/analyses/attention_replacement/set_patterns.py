"""Losses with the mechanism of one head changed and those of others set, for many changes (*trials*).

The engine runs them where it represents the model, positions are in the stream, heads share nothing and the intact runs
fit into memory; elsewhere each trial is one hooked forward pass. Both give the same numbers to 1e-5 in float32
(tested).

A trial differs from an intact run in the pattern of one head. Then a position is run in a layer only if it differs from
the intact run there (its row changed, or it sees a position that differs) and a position that is read can see it
through the layers above. A head with a set pattern needs its values only: z = pattern @ v. Set patterns are mostly
zero, so that few positions are left; where attention is learned, every query sees all keys up to itself. All else is
taken from the intact run. Trials are stacked along a cell axis, and positions are rows of one matrix across all cells.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.analyses.attention import layer_attention
from mnemoscope.analyses.attention_replacement.losses import Assignment, HeadIndex, LossMeter, Score, SkillLoss, score
from mnemoscope.core.patterns import Mechanism, checked_pattern, unspecified_queries
from mnemoscope.core.site import Site
from mnemoscope.engine.architecture import resumable_transformer
from mnemoscope.engine.block import Attention, Block
from mnemoscope.engine.budget import CACHE_BYTES, Sizes, output_width
from mnemoscope.engine.pointwise import project
from mnemoscope.engine.transformer import Transformer
from mnemoscope.interventions.graph import check_exists
from mnemoscope.interventions.recordings import record_activations

MAX_BYTES = 2**30
"""Memory for the intact runs."""
MLP_BYTES = 2**19
"""Memory for the activations of an MLP at once."""
DENSE = 0.8
"""From this share of positions that differ on, all are run: gathering them costs more than it saves."""
N_OUTPUTS = 8
"""Logits that are in memory together for each place: of some trials, and what is made of them."""

Rows = Float[Tensor, "batch query key"]
"""A pattern that a head is set to."""
Trials = Callable[[Assignment, HeadIndex, Sequence[Rows]], tuple[Score, list[Score]]]
"""From set mechanisms, a head and patterns of it: the score of what is set, and with each pattern in that head.

Where a pattern is NaN, attention is learned. The head need not be one of those that are set.
"""


@torch.no_grad()
def prepare_trials(at: LossMeter, assigned: Assignment) -> Trials:
    """Trials of a model on a batch, by the engine where possible; `assigned` has all mechanisms that are ever set."""
    for layer, head in assigned:
        check_exists(at.model, Site(kind="pattern", layer=layer, head=head))
    read = torch.stack([mask.any(0) for mask in at.by.masks.values()]).any(0).nonzero()[:, 0]
    weights = resumable_transformer(at.model, at.by.batch.inputs.shape[1])
    if not isinstance(weights, str) and _is_plain(weights) and _intact_bytes(at, len(read)) <= MAX_BYTES:
        return EngineTrials(at, weights, assigned, read)
    return partial(_run_hooked, at)


def _is_plain(weights: Transformer) -> bool:
    """True if trials can be run on some positions, with values that belong to one head each."""
    attentions = [block.attention for block in weights.blocks]
    own = all(attn.n_sharing == 1 and attn.window is None and not attn.linear for attn in attentions)
    return own and weights.w_pos is not None and not any(block.parallel for block in weights.blocks)


def _run_hooked(
    at: LossMeter, assigned: Assignment, head: HeadIndex, patterns: Sequence[Rows]
) -> tuple[Score, list[Score]]:
    changed = [Mechanism(name=f"trial {number}", pattern=lambda _, p=p: p) for number, p in enumerate(patterns)]
    return at.with_patterns(assigned), [at.with_patterns({**assigned, head: mechanism}) for mechanism in changed]


def _intact_bytes(at: LossMeter, n_read: int) -> int:
    """The bytes of two intact runs, and of the outputs of some trials."""
    cfg, n_pos = at.model.cfg, at.by.batch.inputs.shape[1]
    numbers = 2 * cfg.d_model + 3 * cfg.n_heads * cfg.d_head + cfg.n_heads * n_pos
    outputs = N_OUTPUTS * n_read * output_width(at.model)
    return 8 * len(at.by.batch) * (cfg.n_layers * n_pos * numbers + outputs)


class EngineTrials:
    """Trials on a batch that is cut into parts of which one trial fits into the cache."""

    def __init__(self, at: LossMeter, weights: Transformer, assigned: Assignment, read: Int[Tensor, " read"]):
        self._at, self._batch, self._weights, self._read = at, at.by.batch, weights, read
        self._by = _restrict_positions(at.by, read)
        start = Site(kind="resid_pre", layer=0).hook
        self._stream = record_activations(at.model, at.by.batch, [start])[start]
        self._bytes = Sizes(cfg=at.model.cfg, n_pos=self._stream.shape[1], n_read=len(read)).continued_cell_bytes(0)
        n = max(1, CACHE_BYTES // self._bytes)
        self._parts = [slice(start, start + n) for start in range(0, len(at.by.batch), n)]
        self._patterns: dict[tuple[object, int], LayerPatterns] = {}
        self._whole = self._intact_runs(assigned)
        self._last = (assigned, self._whole)
        self._learned: tuple[int, Tensor] | None = None

    @torch.no_grad()
    def __call__(self, assigned: Assignment, head: HeadIndex, patterns: Sequence[Rows]) -> tuple[Score, list[Score]]:
        """The scores; hooked if attention is learned in other rows than before, or a head is set that was not set."""
        if assigned and head not in assigned:
            return _run_hooked(self._at, assigned, head, patterns)
        before = unspecified_queries(checked_pattern(assigned[head], self._batch)) if assigned else None
        for pattern in patterns:
            rows = unspecified_queries(pattern)
            if rows.any() if before is None else not torch.equal(rows, before):
                return _run_hooked(self._at, assigned, head, patterns)
        if assigned != self._last[0]:
            self._last = (assigned, self._intact_runs(assigned, self._whole))
        runs = self._last[1]
        rows = torch.stack([*patterns]).to(self._stream)
        learned = None if assigned else self._learned_attention(head)
        outputs = [
            self._outputs(run, head, rows[:, part], None if learned is None else learned[part])
            for run, part in zip(runs, self._parts, strict=True)
        ]
        clean = torch.cat([run.outputs for run in runs])
        return score(clean, self._by), [score(after, self._by) for after in torch.cat(outputs, 1)]

    def _outputs(
        self, run: "IntactRun", head: HeadIndex, rows: Float[Tensor, "cell batch query key"], learned: Rows | None
    ) -> Float[Tensor, "cell batch read d_output"]:
        n = max(1, CACHE_BYTES // (self._bytes * rows.shape[1]))
        return torch.cat([continued(self._weights, run, *head, chunk, learned) for chunk in rows.split(n)])

    def _learned_attention(self, head: HeadIndex) -> Rows:
        """The learned attention of the head; that of its layer stays for the next one."""
        if self._learned is None or self._learned[0] != head[0]:
            self._learned = (head[0], layer_attention(self._at.model, head[0], self._batch).to(self._stream))
        return self._learned[1][:, head[1]]

    def _intact_runs(self, assigned: Assignment, whole: Sequence["IntactRun"] | None = None) -> list["IntactRun"]:
        """The intact run on every part, from the first layer on in which it differs from one of more mechanisms."""
        n_layers, found = len(self._weights.blocks), []
        for number, part in enumerate(self._parts):
            patterns = [self._patterns_of_layer(assigned, layer, part) for layer in range(n_layers)]
            below = whole[number].layers if whole else []
            n_same = next((i for i, old in enumerate(below) if old.patterns is not patterns[i]), len(below))
            if whole and n_same == n_layers:
                found.append(whole[number])
                continue
            stream = below[n_same].before if below else self._stream[part]
            where = self._at.by.tested[part]
            found.append(run_intact(self._weights, stream, patterns, where, self._read, below[:n_same]))
        return found

    def _patterns_of_layer(self, assigned: Assignment, layer: int, part: slice) -> "LayerPatterns":
        own = tuple((head, mechanism) for (where, head), mechanism in assigned.items() if where == layer)
        key = (own, part.start)
        if key not in self._patterns:
            n, n_pos = self._stream[part].shape[:2]
            rows = self._stream.new_full((n, self._at.model.cfg.n_heads, n_pos, n_pos), torch.nan)
            for head, mechanism in own:
                rows[:, head] = checked_pattern(mechanism, self._batch)[part]
            self._patterns[key] = LayerPatterns.from_rows(rows)
        return self._patterns[key]


def _restrict_positions(by: SkillLoss, read: Int[Tensor, " read"]) -> SkillLoss:
    """The same at some positions only."""
    fields = {name: getattr(by.batch, name)[:, read] for name in ("inputs", "targets", "scored")}
    return SkillLoss(batch=replace(by.batch, **fields), masks={name: mask[:, read] for name, mask in by.masks.items()})


@dataclass(frozen=True, kw_only=True)
class LayerPatterns:
    """The set attention of a layer.

    `rows` are 0 where attention is learned, which `free` marks; `learned` are the heads that have such rows.
    """

    rows: Float[Tensor, "batch head_index query key"]
    free: Bool[Tensor, "batch head_index query"]
    learned: tuple[int, ...]

    @staticmethod
    def from_rows(rows: Float[Tensor, "batch head_index query key"]) -> "LayerPatterns":
        """From patterns with NaN where attention is learned."""
        free = unspecified_queries(rows)
        return LayerPatterns(
            rows=rows.nan_to_num(), free=free, learned=tuple(free.any(-1).any(0).nonzero()[:, 0].tolist())
        )

    @cached_property
    def sees(self) -> Bool[Tensor, "batch query key"]:
        """True for the keys that a query attends to with some head."""
        return ((self.rows > 0) | self.free[..., None]).any(1).tril()

    @cached_property
    def all_free(self) -> bool:
        """True if nothing is set."""
        return bool(self.free.all())


Projections = dict[str, Float[Tensor, "*rows some_heads"]]
"""Queries `q` and keys `k` of the heads with learned attention, and the values `v` of all; heads lie side by side."""


@dataclass(frozen=True, kw_only=True)
class IntactLayer:
    """A layer of the intact run: the stream before it and after its attention (`middle`), and the rest."""

    before: Float[Tensor, "batch pos d_model"]
    middle: Float[Tensor, "batch pos d_model"]
    patterns: LayerPatterns
    projections: Projections


@dataclass(frozen=True, kw_only=True)
class IntactRun:
    """A run that trials differ from.

    `needed` marks for every layer the positions whose stream after it influences an output that is read. `read` are the
    positions of `outputs`.
    """

    layers: Sequence[IntactLayer]
    needed: Sequence[Bool[Tensor, "batch pos"]]
    read: Int[Tensor, " read"]
    outputs: Float[Tensor, "batch read d_output"]


def run_intact(
    weights: Transformer,
    stream: Float[Tensor, "batch pos d_model"],
    patterns: Sequence[LayerPatterns],
    where: Bool[Tensor, "batch pos"],
    read: Int[Tensor, " read"],
    below: Sequence[IntactLayer] = (),
) -> IntactRun:
    """Run a model with set patterns.

    `stream` is the residual stream before the first layer, or before the one after `below`: the lower layers of a run
    that is the same up to there. Outputs are wanted at the positions `where`; `read` lists those wanted in some
    sequence.
    """
    layers = [*below]
    everywhere = torch.arange(stream.shape[1], device=stream.device)
    for block, own in zip(weights.blocks[len(below) :], patterns[len(below) :], strict=True):
        qkv, attn = _projections(block, stream, own.learned), block.attention
        alone = {name: value[None] for name, value in qkv.items()}
        middle = stream + project(_z(own, alone, attn, everywhere)[0], attn.w_o.flatten(0, 1), attn.b_o)
        layers.append(IntactLayer(before=stream, middle=middle, patterns=own, projections=qkv))
        stream = _after_mlp(block, middle.flatten(0, 1).clone()).view_as(middle)
    needed = [where]
    for own in reversed(patterns[1:]):
        needed.insert(0, needed[0] | _sees_some(own.sees.mT, needed[0][None])[0])
    return IntactRun(layers=layers, needed=needed, read=read, outputs=weights.unembed(stream[:, read]))


def continued(
    weights: Transformer,
    run: IntactRun,
    index: int,
    head: int,
    rows: Float[Tensor, "cell batch query key"],
    learned: Rows | None = None,
) -> Float[Tensor, "cell batch read d_output"]:
    """Outputs of trials that differ from a run in the pattern of one head of the layer `index`, where outputs are read.

    `rows` are that pattern in every cell; rows of NaN are those of the intact run. `learned` is the head's attention in
    the intact run, where none is set.
    """
    block, layer = weights.blocks[index], run.layers[index]
    attn = block.attention
    change = (rows - (layer.patterns.rows[:, head] if learned is None else learned)).nan_to_num()
    live = (change != 0).any(-1) & run.needed[index]
    z = change @ attn.heads(layer.projections["v"])[:, head]
    at = _entry_numbers(live)
    stream = _intact_values(layer.middle, at) + z.flatten(0, 2).index_select(0, at) @ attn.w_o[head]
    stream = _after_mlp(block, stream)
    above = zip(weights.blocks[index + 1 :], run.layers[index + 1 :], run.needed[index + 1 :], strict=True)
    for block, layer, needed in above:
        live, stream = _run_layer(block, layer, needed, live, stream)
    outputs = run.outputs.repeat(len(rows), 1, 1, 1)
    outputs.flatten(0, 2)[_entry_numbers(live[:, :, run.read])] = weights.unembed(stream)
    return outputs


def _run_layer(
    block: Block,
    layer: IntactLayer,
    needed: Bool[Tensor, "batch pos"],
    live: Bool[Tensor, "cell batch pos"],
    stream: Float[Tensor, "row d_model"],
) -> tuple[Bool[Tensor, "cell batch pos"], Float[Tensor, "row_after d_model"]]:
    """The positions that differ from the intact run after a layer and are needed there, and their stream.

    `live` are the positions that differ before the layer, and `stream` is the stream at these.
    """
    if live.sum() > DENSE * live.numel():
        everywhere = torch.ones_like(live)
        stream = _take_positions(layer.before, live, stream, everywhere)
        live = everywhere
    after = (live | _sees_some(layer.patterns.sees, live)) & needed
    before, at = _entry_numbers(live), _entry_numbers(after)
    attn, whole = block.attention, {}
    for name, new in _projections(block, stream, layer.patterns.learned).items():
        if len(before) < live.numel():
            new = layer.projections[name].repeat(len(live), 1, 1, 1).flatten(0, 2).index_copy_(0, before, new)
        whole[name] = new.view(*live.shape, new.shape[-1])
    queries = after.flatten(0, 1).any(0).nonzero()[:, 0]
    z = _z(layer.patterns, whole, attn, queries).flatten(0, 2)
    if len(at) < len(z):
        z = z.index_select(0, _entry_numbers(after[:, :, queries]))
    stream = _take_positions(layer.before, live, stream, after)
    return after, _after_mlp(block, stream.add_(project(z, attn.w_o.flatten(0, 1), attn.b_o)))


def _projections(block: Block, stream: Float[Tensor, "*rows d_model"], learned: Sequence[int]) -> Projections:
    """Queries and keys of the learned heads, and the values of all."""
    normed, attn = block.ln1(stream), block.attention
    n_heads, found = len(attn.w_o), {}
    for kind in ("q", "k", "v"):
        w, b = attn.input_projection(kind)
        if kind != "v" and len(learned) < n_heads:
            w, b = (x.unflatten(0, (n_heads, -1))[list(learned)].flatten(0, 1) for x in (w, b))
        found[kind] = F.linear(normed, w, b)
    return found


def _z(
    patterns: LayerPatterns, of: Projections, attn: Attention, queries: Int[Tensor, " query"]
) -> Float[Tensor, "cell batch query all_heads"]:
    """The attended values of heads at some queries."""
    v, learned = attn.heads(of["v"]), list(patterns.learned)
    some = len(queries) < v.shape[-2]
    z = None if patterns.all_free else (patterns.rows[:, :, queries] if some else patterns.rows) @ v
    if learned:
        q, k = attn.heads(of["q"][:, :, queries] if some else of["q"]), attn.heads(of["k"])
        by_learned = attn.attend(q, k, v if len(learned) == v.shape[2] else v[:, :, learned], queries)
        if z is None:
            z = by_learned
        else:
            z[:, :, learned] = torch.where(patterns.free[:, learned][:, :, queries, None], by_learned, z[:, :, learned])
    assert z is not None
    return rearrange(z, "cell batch head pos d_head -> cell batch pos (head d_head)")


def _after_mlp(block: Block, stream: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
    """The stream after the MLP of a block; it is overwritten, some rows at a time, whose activations fit the cache."""
    if block.mlp is not None:
        for rows in stream.split(max(1, MLP_BYTES // (block.mlp.w_in.shape[1] * stream.element_size()))):
            rows += block.mlp(block.ln2(rows))
    return stream


def _take_positions(
    intact_stream: Float[Tensor, "batch pos d_model"],
    live: Bool[Tensor, "cell batch pos"],
    stream: Float[Tensor, "row d_model"],
    after: Bool[Tensor, "cell batch pos"],
) -> Float[Tensor, "row_after d_model"]:
    """The stream of the live positions at other ones; at those that are not live, that of the intact run."""
    if torch.equal(live, after):
        return stream
    at = _entry_numbers(after)
    both = (live & after).flatten()
    new = stream.index_select(0, _entry_numbers(both[_entry_numbers(live)]))
    return _intact_values(intact_stream, at).index_copy_(0, _entry_numbers(both[at]), new)


def _sees_some(
    sees: Bool[Tensor, "batch query key"], which: Bool[Tensor, "cell batch key"]
) -> Bool[Tensor, "cell batch query"]:
    """True if a query sees some of the keys."""
    return einsum(sees.float(), which.float(), "batch query key, cell batch key -> cell batch query") > 0


def _entry_numbers(which: Bool[Tensor, "*axes"]) -> Int[Tensor, " row"]:
    """The numbers of the chosen entries, counted over all axes."""
    return which.flatten().nonzero()[:, 0]


def _intact_values(values: Float[Tensor, "batch pos width"], at: Int[Tensor, " row"]) -> Float[Tensor, "row width"]:
    """The values of the intact run at these positions of cells."""
    return values.flatten(0, 1).index_select(0, at % (len(values) * values.shape[1]))
