"""Losses with the mechanism of one head changed and those of others kept, for many changes.

By the engine (`set_forward`) where it represents the model, positions are in the stream, heads share nothing and the
intact runs fit into memory; one hooked forward pass a change elsewhere. Both give the same numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.analyses.attention import layer_attention
from mnemoscope.analyses.attention_replacement.losses import Score, SkillLoss, score
from mnemoscope.analyses.attention_replacement.replacement import Assignment, Bench, Head
from mnemoscope.analyses.attention_replacement.set_forward import Intact, Patterns, continued, intact
from mnemoscope.core.patterns import Mechanism, checked_pattern, silent
from mnemoscope.core.site import Site
from mnemoscope.engine.architecture import resumable_transformer
from mnemoscope.engine.budget import CACHE_BYTES, Sizes, output_width
from mnemoscope.engine.transformer import Transformer
from mnemoscope.interventions.graph import check_exists
from mnemoscope.interventions.recordings import recorded

MAX_BYTES = 2**30
"""Memory for the intact runs that are kept."""

_OUTPUTS = 8
"""Logits that are in memory together for each place: of some trials, and what is made of them."""

Rows = Float[Tensor, "batch query key"]
"""A pattern that a head is set to."""
Trials = Callable[[Assignment, Head, Sequence[Rows]], tuple[Score, list[Score]]]
"""From what is kept, a head and patterns of it: the score of what is kept, and with each pattern in that head.

Where a pattern is NaN, attention is learned. The head need not be one of those that are kept.
"""


@torch.no_grad()
def trials(at: Bench, assigned: Assignment) -> Trials:
    """The fast way for a model on a batch, if it is open, otherwise the hooked way; `assigned` has all that is kept."""
    for layer, head in assigned:
        check_exists(at.model, Site(kind="pattern", layer=layer, head=head))
    read = torch.stack([mask.any(0) for mask in at.by.masks.values()]).any(0).nonzero()[:, 0]
    weights = resumable_transformer(at.model, at.by.batch.inputs.shape[1])
    if not isinstance(weights, str) and _is_plain(weights) and _kept_bytes(at, len(read)) <= MAX_BYTES:
        return WithoutHooks(at, weights, assigned, read)
    return partial(_hooked, at)


def _is_plain(weights: Transformer) -> bool:
    """True if trials can be run on some positions, with values that belong to one head each."""
    attentions = [block.attention for block in weights.blocks]
    own = all(attn.n_sharing == 1 and attn.window is None and not attn.linear for attn in attentions)
    return own and weights.w_pos is not None and not any(block.parallel for block in weights.blocks)


def _hooked(at: Bench, kept: Assignment, head: Head, patterns: Sequence[Rows]) -> tuple[Score, list[Score]]:
    changed = [Mechanism(name=f"trial {number}", pattern=lambda _, p=p: p) for number, p in enumerate(patterns)]
    return at.with_patterns(kept), [at.with_patterns({**kept, head: mechanism}) for mechanism in changed]


def _kept_bytes(at: Bench, n_read: int) -> int:
    """The bytes of two intact runs, and of the outputs of some trials."""
    cfg, n_pos = at.model.cfg, at.by.batch.inputs.shape[1]
    numbers = 2 * cfg.d_model + 3 * cfg.n_heads * cfg.d_head + cfg.n_heads * n_pos
    outputs = _OUTPUTS * n_read * output_width(at.model)
    return 8 * len(at.by.batch) * (cfg.n_layers * n_pos * numbers + outputs)


class WithoutHooks:
    """Trials on a batch that is cut into parts of which one trial fits into the cache."""

    def __init__(self, at: Bench, weights: Transformer, assigned: Assignment, read: Int[Tensor, " read"]):
        self._at, self._batch, self._weights, self._read = at, at.by.batch, weights, read
        self._by = _at_positions(at.by, read)
        start = Site(kind="resid_pre", layer=0).hook
        self._where = torch.stack([*at.by.masks.values()]).any(0)
        self._stream = recorded(at.model, at.by.batch, [start])[start]
        self._n_heads = at.model.cfg.n_heads
        n_pos = self._stream.shape[1]
        self._bytes = Sizes(cfg=at.model.cfg, n_pos=n_pos, n_read=len(read)).continued(0)
        n = max(1, CACHE_BYTES // self._bytes)
        self._parts = [slice(start, start + n) for start in range(0, len(at.by.batch), n)]
        self._patterns: dict[tuple[object, int], Patterns] = {}
        self._whole = self._runs(assigned)
        self._last = (assigned, self._whole)
        self._learned: tuple[int, Tensor] | None = None

    @torch.no_grad()
    def __call__(self, kept: Assignment, head: Head, patterns: Sequence[Rows]) -> tuple[Score, list[Score]]:
        """The scores; hooked if attention is learned in other rows than before, or a head is set that was not kept."""
        alone = not kept
        if not alone and head not in kept:
            return _hooked(self._at, kept, head, patterns)
        before = None if alone else silent(checked_pattern(kept[head], self._batch))
        for pattern in patterns:
            rows = silent(pattern)
            if rows.any() if before is None else not torch.equal(rows, before):
                return _hooked(self._at, kept, head, patterns)
        if kept != self._last[0]:
            self._last = (kept, self._runs(kept, self._whole))
        runs = self._last[1]
        rows = torch.stack([*patterns]).to(self._stream)
        learned = self._attention(head) if alone else None
        outputs = torch.cat(
            [
                self._changed(run, head, rows[:, part], None if learned is None else learned[part])
                for run, part in zip(runs, self._parts, strict=True)
            ],
            1,
        )
        intact_outputs = torch.cat([run.outputs for run in runs])
        return score(intact_outputs, self._by), [score(after, self._by) for after in outputs]

    def _changed(
        self, run: Intact, head: Head, rows: Float[Tensor, "cell batch query key"], learned: Rows | None
    ) -> Float[Tensor, "cell batch read d_output"]:
        n = max(1, CACHE_BYTES // (self._bytes * rows.shape[1]))
        return torch.cat([continued(self._weights, run, *head, chunk, learned) for chunk in rows.split(n)])

    def _attention(self, head: Head) -> Rows:
        """The learned attention of the head; that of its layer is kept for the next one."""
        if self._learned is None or self._learned[0] != head[0]:
            self._learned = (head[0], layer_attention(self._at.model, head[0], self._batch).to(self._stream))
        return self._learned[1][:, head[1]]

    def _runs(self, kept: Assignment, whole: Sequence[Intact] | None = None) -> list[Intact]:
        """The intact run on every part, from the first layer on in which it differs from one of more mechanisms."""
        n_layers, found = len(self._weights.blocks), []
        for number, part in enumerate(self._parts):
            patterns = [self._of_layer(kept, layer, part) for layer in range(n_layers)]
            below = whole[number].kept if whole else []
            n_same = next((i for i, old in enumerate(below) if old.patterns is not patterns[i]), len(below))
            if whole and n_same == n_layers:
                found.append(whole[number])
                continue
            stream = below[n_same].before if below else self._stream[part]
            found.append(intact(self._weights, stream, patterns, self._where[part], self._read, below[:n_same]))
        return found

    def _of_layer(self, kept: Assignment, layer: int, part: slice) -> Patterns:
        own = tuple((head, mechanism) for (where, head), mechanism in kept.items() if where == layer)
        key = (own, part.start)
        if key not in self._patterns:
            n_pos = self._stream.shape[1]
            rows = self._stream.new_full((len(self._stream[part]), self._n_heads, n_pos, n_pos), torch.nan)
            for head, mechanism in own:
                rows[:, head] = checked_pattern(mechanism, self._batch)[part]
            self._patterns[key] = Patterns.of(rows)
        return self._patterns[key]


def _at_positions(by: SkillLoss, read: Int[Tensor, " read"]) -> SkillLoss:
    """The same at some positions only."""
    batch = by.batch
    fields = {name: getattr(batch, name)[:, read] for name in ("inputs", "targets", "scored")}
    return SkillLoss(batch=replace(batch, **fields), masks={name: mask[:, read] for name, mask in by.masks.items()})
