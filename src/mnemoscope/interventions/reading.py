"""Forward passes that unembed only where logits are read, in parts that keep to a number of bytes.

A position has as many logits as there are tokens, so that the logits of all positions are what fills the memory of a
language model. What is in memory is estimated from above, in numbers of the model's floats, and in float64 where
log-probabilities are formed; tests hold the estimate against what is really allocated.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mnemoscope.core.batch import CHUNK, Inputs
from mnemoscope.core.errors import InputError, fits
from mnemoscope.core.modes import evaluation_mode
from mnemoscope.core.protocols import HookedModel
from mnemoscope.engine.budget import MAX_BYTES, forward_bytes, output_width

MAX_RESULT_BYTES = 2**31
"""How large a result may get that holds a number for every token."""
LOG_PROBS = 28
"""Bytes of a logit where log-probabilities in float64 are made of it, and accuracies."""

Pick = Callable[[Tensor], Tensor]


@contextmanager
def unembedding(model: HookedModel, pick: Pick) -> Iterator[Pick]:
    """Within the block a forward pass of the model unembeds what `pick` leaves of the final stream, and nothing else.

    The model is in evaluation mode there.

    Args:
        model: Any hooked model. One without a module `unembed`, or with hooks there, unembeds everything.
        pick: From `batch pos width` to another number of rows and positions.

    Yields:
        A function of the model's output that picks where the model did not.
    """
    unembed, picked = getattr(model, "unembed", None), []

    def narrow(module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not given:
            return None
        picked.append(True)
        return (pick(given[0]), *given[1:])

    with evaluation_mode(model), ExitStack() as stack:
        if isinstance(unembed, nn.Module) and not _watched(model):
            stack.callback(unembed.register_forward_pre_hook(narrow).remove)
        yield lambda output: output if picked else pick(output)


def _watched(model: HookedModel) -> bool:
    """True if hooks are on the unembedding: they may count on every position."""
    points = getattr(model, "hook_dict", {})
    return any(point.fwd_hooks for name, point in points.items() if name.startswith("unembed"))


def at_columns(read: Int[Tensor, " read"]) -> Pick:
    """Some positions of every row."""
    return lambda stream: stream.index_select(1, read.to(stream.device))


def nowhere(stream: Tensor) -> Tensor:
    """No position at all."""
    return stream[:, :0]


def logits_at(
    model: HookedModel,
    inputs: Inputs,
    where: Bool[Tensor, "batch pos"],
    run: Callable[[Tensor], Tensor] | None = None,
) -> Float[Tensor, "place d_vocab"]:
    """Logits, or output vectors, at some places.

    Args:
        model: Any hooked model.
        inputs: Of some sequences.
        where: The places of these.
        run: What gives the output, such as the model under hooks; none: the model.

    Returns:
        Row by row, in the order of `where.nonzero()`.
    """

    def pick(stream: Tensor) -> Tensor:
        return stream.expand(len(where), *stream.shape[1:])[where.to(stream.device)][None]

    with unembedding(model, pick) as picked:
        return picked((run or model)(inputs))[0]


def parts(
    model: HookedModel,
    where: Bool[Tensor, "batch pos"],
    *,
    max_bytes: int | None = None,
    bytes_per_logit: int = LOG_PROBS,
    kept: int = 0,
    copies: int = 1,
    most_rows: int = CHUNK,
) -> list[tuple[slice, Bool[Tensor, "rows pos"]]]:
    """How to read places in forward passes that keep to a number of bytes.

    Args:
        model: Any hooked model.
        where: The places.
        max_bytes: Of one pass and what is made of its logits. None: 256 MiB, or what one sequence needs if that is
            more.
        bytes_per_logit: What is made of logits, for each of them.
        kept: Bytes that stay in memory besides.
        copies: How often a pass runs every sequence.
        most_rows: Sequences of a pass at most.

    Returns:
        The rows of each pass, and their places in it, in order. A sequence whose places do not fit comes several times.

    Raises:
        InputError: A given `max_bytes` does not suffice for one sequence and one place; saying what would.
    """
    n_pos, per_place = where.shape[1], copies * output_width(model) * bytes_per_logit
    hidden, budget = copies * forward_bytes(model, n_pos), MAX_BYTES if max_bytes is None else max_bytes - kept
    if max_bytes is not None:
        what = f"a forward pass of one sequence of {n_pos} positions, read at one of them,"
        what += " beside what stays in memory," if kept else ""
        fits(what, hidden + per_place + kept, max_bytes, "take shorter sequences, or a smaller reference")
    most = int(where.sum(1).max()) if len(where) else 0
    n_rows = max(1, min(most_rows, budget // (hidden + max(1, most) * per_place)))
    if n_rows > 1 or hidden + most * per_place <= budget:
        return [(slice(i, min(i + n_rows, len(where))), where[i : i + n_rows]) for i in range(0, len(where), n_rows)]
    at_once = max(1, (budget - hidden) // per_place)
    return [(slice(row, row + 1), some) for row in range(len(where)) for some in _pieces(where[row : row + 1], at_once)]


def _pieces(where: Bool[Tensor, "1 pos"], at_once: int) -> Iterator[Bool[Tensor, "1 pos"]]:
    """The places of one sequence, so many at a time; one without a place comes once."""
    number = where.cumsum(1)
    for start in range(0, max(1, int(where.sum())), at_once):
        yield where & (number > start) & (number <= start + at_once)


def whole_rows(
    model: HookedModel, where: Bool[Tensor, "batch pos"], **options: Any
) -> list[tuple[slice, Bool[Tensor, "rows pos"]]]:
    """As `parts`, every sequence once, for what needs all of its places together."""
    starts = {rows.start: rows for rows, _ in parts(model, where, **options)}
    return [(rows, where[rows]) for rows in starts.values()]


def rows_at_once(model: HookedModel, n_pos: int, *, kept: int = 0, max_bytes: int | None = None) -> int:
    """Sequences of a forward pass that unembeds nothing, of which each keeps a number of bytes; at least one."""
    budget = MAX_BYTES if max_bytes is None else max_bytes
    return max(1, min(CHUNK, budget // (forward_bytes(model, n_pos) + kept)))


def check_result(what: str, n_bytes: int, way_out: str) -> None:
    """Refuse a result that would be larger than 2 GiB before it is computed.

    Raises:
        InputError: It would; saying what to do.
    """
    if n_bytes > MAX_RESULT_BYTES:
        raise InputError(
            f"{what} would take {n_bytes / 1e9:,.1f} GB, more than {MAX_RESULT_BYTES / 1e9:,.1f}; {way_out}"
        )
