"""Whether every attention path that is left is needed.

The attention of heads is replaced by mechanisms at once. Then one path at a time is taken out: its weight goes to
the keys that a fallback names instead (the query itself, or all keys alike), off the path. Of the fallbacks the one
that hurts least counts, so that a path is needed only if nothing uninformative can stand in for it. This is the last
step of the procedure of Musat, "Mechanism and emergence of stacked attention heads in multi-layer transformers".

*Shows* whether the circuit of the mechanisms is without superfluous paths, one at a time.

*Does not show* that two paths are not superfluous together, nor that no other set of paths would do.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import xarray as xr
from jaxtyping import Bool
from torch import Tensor

from mnemoscope.analyses.attention_replacement.replacement import TOLERANCE, Assignment, Bench, Head, bench
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.mechanism import Mechanism, checked_pattern, silent
from mnemoscope.core.patterns import identity, uniform
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.skills import Skills

Grain = Literal["mechanism", "query", "cell"]
FALLBACKS = (identity(), uniform())
LATER = ("set", "learned")


@dataclass(frozen=True, kw_only=True, eq=False)
class Path:
    """Some of the cells of a head's pattern, on one batch.

    Attributes:
        head: Layer and number.
        name: What it is called in results.
        cells: Which cells; all of them have weight.
    """

    head: Head
    name: str
    cells: Bool[Tensor, "batch query key"]


def remove_paths(
    model: HookedModel,
    batch: Batch,
    assigned: Assignment,
    *,
    skills: Skills | None = None,
    of: Sequence[Head] | None = None,
    by: Grain = "mechanism",
    fallbacks: Sequence[Mechanism] = FALLBACKS,
    tolerance: float = TOLERANCE,
) -> xr.Dataset:
    """The loss with mechanisms in place and one path taken out, path by path.

    Arguments as for `replace_heads`. A path is a part of a head's `mechanism` (of "a, else b" the rows that a gives,
    then those of b), one `query` position of such a part, or one `cell` of query and key (`by`). Those of the heads
    `of` are taken out (none: of all that are assigned), and their weight goes where one of the `fallbacks` attends.
    Needed is a path without which a loss rises by more than the tolerance.

    Returns:
        Over (path, later, skill): `loss` (nats), `accuracy`, `rise` over the loss with no path taken out and its
        standard error `rise_error`; over (path, later): `costs`, and `fallback`, the one that hurts least; over path:
        `needed`, `layer` and `head`. Paths whose weight has nowhere else to go, as that of the first query, are left
        out.

    Raises:
        InputError: A head of `of` has no mechanism, no path can be taken out, a pattern could not be attention, or a
            skill is tested nowhere.
    """
    for head in of or ():
        one_of("a head whose paths are taken out", head, assigned)
    result = removed(bench(model, batch, skills, tolerance=tolerance), assigned, of, by, fallbacks)
    if result is None:
        raise InputError("no path can be taken out: give some head a mechanism that leaves out one of its keys")
    return result


def removed(
    at: Bench, assigned: Assignment, of: Sequence[Head] | None, by: Grain, fallbacks: Sequence[Mechanism]
) -> xr.Dataset | None:
    """As `remove_paths`; none if no path can be taken out."""
    rows = []
    for path in paths(at.by.batch, {head: assigned[head] for head in (assigned if of is None else of)}, by):
        instead = {fallback.name: without(path, assigned[path.head], fallback, at.by.batch) for fallback in fallbacks}
        trials = {name: mechanism for name, mechanism in instead.items() if mechanism is not None}
        if trials:
            up_to = {head: mechanism for head, mechanism in assigned.items() if head[0] <= path.head[0]}
            by_later = [_least_harm(at, path.head, trials, kept) for kept in (assigned, up_to)]
            row = xr.concat(by_later, "later", data_vars="all").assign_coords(later=list(LATER), path=path.name)
            rows.append(row.assign(needed=row.costs.any(), layer=path.head[0], head=path.head[1]))
    if not rows:
        return None
    return xr.concat(rows, "path", data_vars="all").assign_attrs(**at.attrs, by=by)


def paths(batch: Batch, assigned: Assignment, by: Grain) -> Iterator[Path]:
    """The paths of some heads that have weight in a batch, head by head.

    Raises:
        InputError: `by` is something else.
    """
    one_of("by", by, ("mechanism", "query", "cell"))
    n_pos = batch.inputs.shape[1]
    for head, mechanism in assigned.items():
        for part, given in _parts(mechanism, batch):
            for suffix, where in _places(n_pos, by):
                cells = given & where.to(given.device)
                if cells.any():
                    yield Path(head=head, name=f"L{head[0]}H{head[1]} {part.name}{suffix}", cells=cells)


def without(path: Path, mechanism: Mechanism, fallback: Mechanism, batch: Batch) -> Mechanism | None:
    """The mechanism with the weight of a path moved to where the fallback attends off the path.

    Where the fallback attends to the path only, the fallback itself takes its place; none if that changes nothing.
    """
    rows = checked_pattern(mechanism, batch).double()
    other = checked_pattern(fallback, batch).double()
    off = other * ~path.cells
    total = off.sum(-1, keepdim=True)
    other = torch.where(total > 0, off / total, other)
    weight = (rows * path.cells).sum(-1, keepdim=True)
    moved = torch.where(weight > 0, rows * ~path.cells + weight * other, rows)
    if torch.allclose(moved, rows, equal_nan=True):
        return None
    return Mechanism(name=f"{mechanism.name} without {path.name}", pattern=lambda _: moved)


def _parts(mechanism: Mechanism, batch: Batch) -> Iterator[tuple[Mechanism, Bool[Tensor, "batch query key"]]]:
    """The parts of a mechanism, each with the cells that have their weight from it."""
    undecided = torch.ones_like(batch.scored)
    for part in mechanism.parts or (mechanism,):
        rows = checked_pattern(part, batch)
        yield part, (rows > 0) & undecided[..., None]
        undecided = undecided & silent(rows)


def _places(n_pos: int, by: Grain) -> Iterator[tuple[str, Bool[Tensor, "query key"]]]:
    whole = torch.ones(n_pos, n_pos, dtype=torch.bool).tril()
    if by == "mechanism":
        yield "", whole
        return
    for query in range(n_pos):
        for key in range(query + 1) if by == "cell" else (None,):
            cells = torch.zeros_like(whole)
            cells[query, slice(None) if key is None else key] = True
            yield (f", query {query}" if key is None else f", {key}→{query}"), cells


def _least_harm(at: Bench, head: Head, trials: Mapping[str, Mechanism], kept: Assignment) -> xr.Dataset:
    """The loss with the fallback that raises it least, over the loss with what is kept."""
    intact = at.with_patterns(kept)
    scores = {name: at.with_patterns({**kept, head: mechanism}) for name, mechanism in trials.items()}
    fallback = min(scores, key=lambda name: float(at.rise(scores[name], intact).mean.max()))
    judged = {"costs": ((), at.rise(scores[fallback], intact).costs(at.tolerance)), "fallback": ((), fallback)}
    return xr.Dataset({**at.measured(scores[fallback], intact), **judged}, coords={"skill": at.by.names})
