"""Bytes of a pass, and the rows, prompts and cells that fit within a bound.

The estimates are upper bounds on what is in memory at once; tests compare them with what is really allocated. They
count numbers in the model's precision, and in float64 where log-probabilities are formed. A position has as many logits
as there are tokens: in a language model, the logits of all positions fill the memory.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from mnemoscope.core.batch import CHUNK
from mnemoscope.core.errors import InputError, check_memory
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import ATTENTION, BY_HEAD, BY_NEURON

MAX_BYTES = 2**28
"""Bound on what is allocated at once, unless another one is given: 256 MiB."""
CACHE_BYTES = 16 * 2**20
"""Size of a chunk on a CPU where weights are few: larger ones gain nothing, smaller ones lose time between operations
(measured).
"""
MAX_RESULT_BYTES = 2**31
"""Bound on a result that holds a number for every token."""
LOG_PROBS = 28
"""Bytes of a logit where log-probabilities in float64 are made of it, and accuracies."""


def float_bytes(model: HookedModel) -> int:
    """Bytes of one number in the model's precision."""
    return torch.empty((), dtype=getattr(model.cfg, "dtype", torch.float32)).element_size()


def output_width(model: HookedModel) -> int:
    """Number of outputs at a position."""
    return getattr(model.cfg, "d_vocab_out", 0) or model.cfg.d_vocab


def forward_bytes(model: HookedModel, n_pos: int) -> int:
    """Bytes of one sequence in a forward pass of the model itself, without logits."""
    if not getattr(model.cfg, "d_model", None):
        return 1
    return float_bytes(model) * n_pos * Sizes(cfg=model.cfg, n_pos=n_pos, n_read=0).floats_per_position


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes that memory depends on: configuration, length of prompts, number of positions that are read."""

    cfg: Any
    n_pos: int
    n_read: int

    @property
    def float_bytes(self) -> int:
        """Bytes of one number."""
        return torch.empty((), dtype=self.cfg.dtype).element_size()

    @property
    def floats_per_position(self) -> int:
        """Numbers per position in a forward pass of the model itself, without logits."""
        attention = 6 * self._heads + 6 * self.cfg.n_heads * self.n_pos
        return 6 * self.cfg.d_model + max(attention, 6 * self._d_mlp)

    @property
    def _heads(self) -> int:
        return self.cfg.n_heads * self.cfg.d_head

    @property
    def _d_mlp(self) -> int:
        return 0 if self.cfg.attn_only else self.cfg.d_mlp

    def _read(self) -> int:
        """Numbers for the logits at the positions that are read, and for their metrics (the divergence needs most)."""
        return self.n_read * (8 * self.cfg.d_vocab_out + 40)

    def weight_bytes(self) -> int:
        """Bytes that do not grow with prompts: copies of weights, and the check of the metrics."""
        return self.float_bytes * (
            self.cfg.d_model * (self.cfg.d_vocab_out + 4 * self._heads) + 300 * self.cfg.d_vocab_out
        )

    def copied_bytes(self) -> int:
        """Bytes of the attention weights that are copied."""
        return self.float_bytes * self.cfg.n_layers * self.cfg.d_model * 3 * self._heads

    def traced_weight_bytes(self) -> int:
        """Bytes of the blocks' weights, which TransformerLens copies in a pass that is differentiated."""
        mlp = (3 if getattr(self.cfg, "gated_mlp", False) else 2) * self._d_mlp
        return self.float_bytes * self.cfg.n_layers * self.cfg.d_model * (4 * self._heads + mlp)

    def continued_cell_bytes(self, start: int) -> int:
        """Bytes of one cell on one prompt, continued from position `start`."""
        n, d = self.n_pos - start, self.cfg.d_model
        attention = n * (2 * d + 5 * self._heads + 2 * self.cfg.n_heads * self.n_pos) + 2 * self.n_pos * self._heads
        mlp = n * (2 * d + (3 if getattr(self.cfg, "gated_mlp", False) else 2) * self._d_mlp)
        logits = self.n_read * 2 * d + self._read()
        return self.float_bytes * (2 * n * d + max(attention, mlp, logits))

    def edge_bytes(self, start: int) -> int:
        """Bytes of one edge on one prompt that changes something from position `start` on."""
        n, d = self.n_pos - start, self.cfg.d_model
        kept = n * (2 * d + self._heads)
        attention = n * (6 * self._heads + 2 * self.cfg.n_heads * self.n_pos) + 4 * self.n_pos * self._heads
        return self.float_bytes * kept + max(self.float_bytes * attention, self.continued_cell_bytes(start))

    def hooked_pass_bytes(self, *, everywhere: bool = True) -> int:
        """Bytes of one prompt in a forward pass of the model itself, with logits everywhere or where they are read."""
        logits = 2 * self.n_pos * self.cfg.d_vocab_out * everywhere + self._read()
        return self.float_bytes * max(self.n_pos * self.floats_per_position, self.n_pos * 2 * self.cfg.d_model + logits)

    def recorded_bytes(self, places: Collection[tuple[str, int | None]]) -> int:
        """Bytes of one prompt's records of two runs at these kinds and layers, with copies of keys and values."""
        numbers = sum(self.activation_width(kind) for kind, _ in places)
        past = 2 * self.cfg.n_layers * self._heads
        read = self.n_read * (2 * self.cfg.d_vocab_out + 40)
        return self.float_bytes * (self.n_pos * (2 * numbers + past) + read)

    def activation_width(self, kind: str) -> int:
        """Numbers per position in an activation of this kind."""
        if kind in ATTENTION:
            return self.cfg.n_heads * self.n_pos
        if kind == "feature":
            return getattr(self.cfg, "n_features", 0)
        return self._heads if kind in BY_HEAD else self._d_mlp if kind in BY_NEURON else self.cfg.d_model


def default_max_bytes(model: HookedModel) -> int:
    """The default bound: `MAX_BYTES`, plus the copies of weights, which do not grow with prompts."""
    sizes = Sizes(cfg=model.cfg, n_pos=1, n_read=1)
    return MAX_BYTES + sizes.weight_bytes() + max(sizes.copied_bytes(), sizes.traced_weight_bytes())


def efficient_pass_bytes(model: HookedModel, least: int) -> int:
    """Bytes beyond which a forward pass on a CPU gains little: `least`, or half of the weights if that is more."""
    return max(least, sum(weight.nbytes for _, weight in model.named_parameters()) // 2)


def n_prompts_at_once(n: int, *, working_bytes: int, kept_bytes: int, max_bytes: int, target: int) -> int:
    """The number of prompts, of `n`, to take at once. Raises InputError where there is no room for one.

    Sizes are in bytes. One prompt needs `at_work` in its largest forward pass, and `kept` as long as its cells run;
    `room` is available. A forward pass exceeds `target` only if a single prompt does.
    """
    if working_bytes + kept_bytes > max_bytes:
        raise InputError(
            f"max_bytes leaves {max(max_bytes, 0):,} bytes for activations and one prompt needs "
            f"{working_bytes + kept_bytes:,}; allow {working_bytes + kept_bytes - max_bytes:,} more"
        )
    return max(1, min(n, max_bytes // (working_bytes + kept_bytes), target // working_bytes))


def split_into_passes(
    model: HookedModel,
    where: Bool[Tensor, "batch pos"],
    *,
    max_bytes: int | None = None,
    bytes_per_logit: int = LOG_PROBS,
    kept: int = 0,
    copies: int = 1,
    most_rows: int = CHUNK,
) -> list[tuple[slice, Bool[Tensor, "rows pos"]]]:
    """Divide places into forward passes that keep to `max_bytes`: the rows of each pass, and their places in it.

    Passes are in order. A sequence whose places do not fit comes several times. Raises InputError where `max_bytes` is
    too small for one sequence and one place; the message says what suffices.

    `max_bytes` bounds one pass and what is made of its logits (None: 256 MiB, or what one sequence needs if more). Of
    each logit `bytes_per_logit` bytes are made, and `kept` bytes stay in memory besides. A pass runs every sequence
    `copies` times, and at most `most_rows` sequences.
    """
    n_pos, per_place = where.shape[1], copies * output_width(model) * bytes_per_logit
    hidden, budget = copies * forward_bytes(model, n_pos), MAX_BYTES if max_bytes is None else max_bytes - kept
    if max_bytes is not None:
        what = f"a forward pass of one sequence of {n_pos} positions, read at one of them,"
        what += " beside what stays in memory," if kept else ""
        check_memory(what, hidden + per_place + kept, max_bytes, "take shorter sequences, or a smaller reference")
    most = int(where.sum(1).max()) if len(where) else 0
    n_rows = max(1, min(most_rows, budget // (hidden + max(1, most) * per_place)))
    if n_rows > 1 or hidden + most * per_place <= budget:
        return [(slice(i, min(i + n_rows, len(where))), where[i : i + n_rows]) for i in range(0, len(where), n_rows)]
    at_once = max(1, (budget - hidden) // per_place)
    return [(slice(row, row + 1), some) for row in range(len(where)) for some in _pieces(where[row : row + 1], at_once)]


def _pieces(where: Bool[Tensor, "1 pos"], at_once: int) -> Iterator[Bool[Tensor, "1 pos"]]:
    """The places of one sequence, `at_once` at a time; a sequence without a place comes once."""
    number = where.cumsum(1)
    for start in range(0, max(1, int(where.sum())), at_once):
        yield where & (number > start) & (number <= start + at_once)


def split_rows_into_passes(
    model: HookedModel, where: Bool[Tensor, "batch pos"], **options: Any
) -> list[tuple[slice, Bool[Tensor, "rows pos"]]]:
    """As `parts`, but every sequence comes once, for results that need all of its places together."""
    starts = {rows.start: rows for rows, _ in split_into_passes(model, where, **options)}
    return [(rows, where[rows]) for rows in starts.values()]


def n_rows_at_once(model: HookedModel, n_pos: int, *, kept: int = 0, max_bytes: int | None = None) -> int:
    """Sequences per forward pass, at least one, if nothing is unembedded and each keeps `kept` bytes."""
    budget = MAX_BYTES if max_bytes is None else max_bytes
    return max(1, min(CHUNK, budget // (forward_bytes(model, n_pos) + kept)))


def check_result_bytes(what: str, n_bytes: int, way_out: str) -> None:
    """Raise InputError before a result of more than 2 GiB is computed; `way_out` says what to do instead."""
    if n_bytes > MAX_RESULT_BYTES:
        raise InputError(
            f"{what} would take {n_bytes / 1e9:,.1f} GB, more than {MAX_RESULT_BYTES / 1e9:,.1f}; {way_out}"
        )
