"""Attention paths: which of them are needed, and the circuit that is left without the others.

The attention of heads is replaced by mechanisms at once. Then one path at a time is taken out: its weight goes to
the keys that a fallback names instead (the query itself, or all keys alike), off the path. Of the fallbacks the one
that hurts least counts, so that a path is needed only if nothing uninformative can stand in for it. This is the last
step of the procedure of Musat, "Mechanism and emergence of stacked attention heads in multi-layer transformers".

`prune` repeats it: as long as some path is not needed, the one of them whose removal costs least is dropped for good.
The author did this by eye.

*Shows* whether the circuit of the mechanisms is without superfluous paths, one at a time; after pruning, paths that are
enough for the loss, each of them needed given the others.

*Does not show* that two paths are not superfluous together, nor that no other set of paths would do: another order of
removal may leave others.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Literal

import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.analyses.attention_replacement.losses import Assignment, HeadIndex, LossMeter, Score
from mnemoscope.analyses.attention_replacement.set_patterns import prepare_trials
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import one_of
from mnemoscope.core.patterns import Mechanism, checked_pattern, identity, uniform, unspecified_queries, with_fallback

Grain = Literal["mechanism", "query", "cell"]
FALLBACKS = (identity(), uniform())
LATER = ("set", "learned")
N_PATHS_AT_ONCE = 8
"""Paths whose patterns are in memory at once."""
TIE = 1e-6
"""Rises of the loss that differ by less are equal: rounding tells them apart, and on other processors otherwise."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Path:
    """Some cells of the pattern of a head (layer and number) on one batch; all of them have weight.

    `name` is the path's name in results, `part` the part of the head's mechanism that it belongs to.
    """

    head: HeadIndex
    name: str
    part: str
    cells: Bool[Tensor, "batch query key"]


def remove_paths(
    at: LossMeter,
    assigned: Assignment,
    heads: Sequence[HeadIndex] | None = None,
    by: Grain = "mechanism",
    fallbacks: Sequence[Mechanism] = FALLBACKS,
) -> xr.Dataset | None:
    """The loss with mechanisms in place and one path taken out, path by path; None if no path can be taken out.

    A path is a part of a head's `mechanism` (of "a, else b" the rows that a gives, then those of b), one `query`
    position of such a part, or one `cell` of query and key (`by`). Those of some `heads` are taken out (None: of all
    that are assigned), and their weight goes where one of the `fallbacks` attends. Needed is a path without which a
    loss rises by more than the tolerance.

    Returns:
        Over (path, later, skill): `loss` (nats), `accuracy`, `rise` over the loss with no path taken out and its
        standard error `rise_error`; over (path, later): `costs`, and `fallback`, the one that hurts least; over path:
        `needed`, `layer`, `head` and `part`, the part of its mechanism. Paths whose weight has nowhere else to go, as
        that of the first query, are left out.
    """
    run, rows = prepare_trials(at, assigned), []
    for head in assigned if heads is None else heads:
        up_to = {other: mechanism for other, mechanism in assigned.items() if other[0] <= head[0]}
        for tried in _replacements(at.by.batch, head, assigned[head], by, fallbacks):
            patterns = [pattern for instead in tried.values() for pattern in instead.values()]
            results = [_least_harm(at, tried, *run(each, head, patterns)) for each in (assigned, up_to)]
            rows += [_row(path, both) for path, *both in zip(tried, *results, strict=True)]
    if not rows:
        return None
    return xr.concat(rows, "path", data_vars="all").assign_attrs(**at.attrs, by=by)


def prune(
    at: LossMeter, assigned: Mapping[HeadIndex, Mechanism], fallbacks: Sequence[Mechanism]
) -> tuple[dict[HeadIndex, Mechanism], tuple[str, ...], xr.Dataset | None]:
    """The rest of mechanisms, the names of the paths that were dropped, and the paths that are left."""
    idle = {fallback.name: fallback for fallback in fallbacks}
    rest, dropped = dict(assigned), []
    while True:
        informed = [
            head for head, mechanism in rest.items() if {part.name for part in mechanism_parts(mechanism)} - {*idle}
        ]
        table = remove_paths(at, rest, informed, "mechanism", fallbacks) if informed else None
        if table is None:
            return rest, tuple(dropped), None
        found = table.isel(path=~table.part.isin(list(idle)).values)
        spare = found.isel(path=~found.needed.values)
        if not spare.sizes["path"]:
            return rest, tuple(dropped), found
        least = spare.isel(path=int(spare.rise.max(("later", "skill")).argmin("path")))
        head = (int(least.layer), int(least["head"]))
        left = [part for part in mechanism_parts(rest[head]) if part.name != least.part.item()]
        rest[head] = reduce(with_fallback, left or [idle[least.fallback.sel(later="set").item()]])
        dropped.append(least.path.item())


def mechanism_parts(mechanism: Mechanism) -> tuple[Mechanism, ...]:
    """The parts of a mechanism, or the whole."""
    return mechanism.parts or (mechanism,)


def pattern_paths(batch: Batch, assigned: Assignment, by: Grain) -> Iterator[Path]:
    """The paths of some heads that have weight in a batch, head by head."""
    one_of("by", by, ("mechanism", "query", "cell"))
    for head, mechanism in assigned.items():
        undecided = torch.ones_like(batch.scored)
        for part in mechanism_parts(mechanism):
            rows = checked_pattern(part, batch)
            given = (rows > 0) & undecided[..., None]
            undecided = undecided & unspecified_queries(rows)
            for suffix, where in _path_cells(batch, by):
                cells = given & where.to(given.device)
                if cells.any():
                    name = f"L{head[0]}H{head[1]} {part.name}{suffix}"
                    yield Path(head=head, name=name, part=part.name, cells=cells)


def redirect_path(
    path: Path, rows: Float[Tensor, "batch query key"], fallback: Float[Tensor, "batch query key"]
) -> Float[Tensor, "batch query key"] | None:
    """A pattern with the weight of a path moved to where the pattern of a fallback is off the path.

    Where the fallback attends to the path only, the fallback itself takes its place; none if that changes nothing.
    """
    touched = path.cells.any(-1)
    own, cells, other = rows[touched], path.cells[touched], fallback[touched]
    off = other * ~cells
    total = off.sum(-1, keepdim=True)
    other = torch.where(total > 0, off / total, other)
    weight = (own * cells).sum(-1, keepdim=True)
    moved = torch.where(weight > 0, own * ~cells + weight * other, own)
    if torch.allclose(moved, own, equal_nan=True):
        return None
    result = rows.clone()
    result[touched] = moved
    return result


def _path_cells(batch: Batch, by: Grain) -> Iterator[tuple[str, Bool[Tensor, "query key"]]]:
    """The cells of every path of a part, and what follows the part in the name of the path."""
    n_pos = batch.inputs.shape[1]
    whole = torch.ones(n_pos, n_pos, dtype=torch.bool).tril()
    if by == "mechanism":
        yield "", whole
        return
    for query in range(n_pos):
        for key in range(query + 1) if by == "cell" else (None,):
            cells = torch.zeros_like(whole)
            cells[query, slice(None) if key is None else key] = True
            at = batch.position_name(query)
            yield (f", query {at}" if key is None else f", {batch.position_name(key)}→{at}"), cells


def _replacements(
    batch: Batch, head: HeadIndex, mechanism: Mechanism, by: Grain, fallbacks: Sequence[Mechanism]
) -> Iterator[dict[Path, dict[str, Tensor]]]:
    """The replacements of a head's pattern, by path and name of the fallback; a few paths at a time."""
    rows = checked_pattern(mechanism, batch).double()
    others = {fallback.name: checked_pattern(fallback, batch).double() for fallback in fallbacks}
    found = pattern_paths(batch, {head: mechanism}, by)
    while several := list(islice(found, N_PATHS_AT_ONCE)):
        every = {path: {name: redirect_path(path, rows, other) for name, other in others.items()} for path in several}
        changed = {path: {n: new for n, new in instead.items() if new is not None} for path, instead in every.items()}
        if some := {path: instead for path, instead in changed.items() if instead}:
            yield some


def _least_harm(
    at: LossMeter, tried: Mapping[Path, Mapping[str, Tensor]], intact: Score, scores: Sequence[Score]
) -> list[xr.Dataset]:
    """For every path the loss with the fallback that raises it least (of equals the first), over that of the intact."""
    left, found = iter(scores), []
    for instead in tried.values():
        own = {name: next(left) for name in instead}
        rises = {name: float(at.loss_rise(outcome, intact).mean.max()) for name, outcome in own.items()}
        fallback = next(name for name, rise in rises.items() if rise <= min(rises.values()) + TIE)
        judged = {"costs": ((), at.loss_rise(own[fallback], intact).costs(at.tolerance)), "fallback": ((), fallback)}
        found.append(xr.Dataset({**at.loss_variables(own[fallback], intact), **judged}, coords={"skill": at.by.names}))
    return found


def _row(path: Path, by_later: Sequence[xr.Dataset]) -> xr.Dataset:
    row = xr.concat(by_later, "later", data_vars="all").assign_coords(later=list(LATER), path=path.name)
    return row.assign(needed=row.costs.any(), layer=path.head[0], head=path.head[1], part=path.part)
