"""Numbers that claims (`claims.circuits`, `claims.emergence`) read of a circuit and of how its paths emerged.

A path leads from the place in the chain that attends to the place attended to; places are those of `Retrieval`. The
*induction head* is two paths: from the second symbol of a pair to the first, and from the query to the second symbol of
its pair of step 1.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import xarray as xr

from mnemoscope import Subject, generator
from mnemoscope.claims import GATE
from mnemoscope.systems.retrieval.analyses import (
    LEVEL,
    chain_circuit,
    first_true_step,
    least_layers,
    path_name,
    path_table,
)
from mnemoscope.systems.retrieval.claim_parts import partial_losses, task_of

N_CIRCUIT = 256
"""Sequences, one half to choose mechanisms by and the other to test them."""
WAYS = ("forward", "back_2", "back_3", "back_both")
INDUCTION = (0, 2)
"""From the query to the second symbol of its pair of step 1."""
LOW = 0.2


class ChainPath(NamedTuple):
    """A path of a circuit, and by how much the error rises without it."""

    layer: int
    head: int
    place: int
    to: int
    rise: float


def take_apart(subject: Subject, *, tolerance: float = 0.05) -> dict[str, float]:
    """The effects of a model's circuit and of the steps at which its paths appear.

    The loss may rise by `tolerance` with the mechanism of one head, or without a path that is not needed. Effects of
    emergence are NaN where there is no trajectory; `GATE` is the largest partial loss.
    """
    task = task_of(subject)
    batch = task.sample(N_CIRCUIT, split="test", generator=generator(subject.seed, "circuit"))
    circuit = chain_circuit(subject.model, batch, tolerance=tolerance, seed=subject.seed)
    table = path_table(circuit, subject.model, batch).rise.sel(skill="all")
    found = table.stack(path=("layer", "head", "place", "to")).dropna("path").to_series()
    paths = [ChainPath(layer, head, place, to, rise) for (layer, head, place, to), rise in found.items()]
    by_later = path_table(circuit, subject.model, batch, later="learned").rise.max(("layer", "head"))
    reused = float(by_later.sel(place=INDUCTION[0], to=INDUCTION[1], skill=[*task.parts][-1]))
    return {
        **of_paths(
            paths,
            n_heads=subject.model.cfg.n_layers * subject.model.cfg.n_heads,
            kept=float((circuit.pruned.loss - circuit.pruned.clean_loss).sel(skill="all")),
            n_steps=task.n_steps,
            by_layout=least_layers(task.n_steps, mask=task.order, one_head=True),
        ),
        **_emergence(paths, subject.trajectory),
        "reused": 0.0 if math.isnan(reused) else reused,
        GATE: max(partial_losses(subject).values()),
    }


def _emergence(paths: list[ChainPath], trajectory: xr.Dataset | None) -> dict[str, float]:
    """Effects of emergence; NaN without a trajectory."""
    if trajectory is None:
        return dict.fromkeys(("induction_first", "width", "spread"), math.nan)
    places = dict.fromkeys((path.place, path.to) for path in paths)
    return of_courses({each: trajectory[path_name(*each)] for each in places})


def of_paths(
    paths: list[ChainPath], *, n_heads: int, kept: float, n_steps: int = 3, by_layout: int = 3
) -> dict[str, float]:
    """The effects of the needed paths of a model with `n_heads` heads.

    `kept` is the rise of the error with all attention replaced; `by_layout` the heads that the order of the data needs.
    """
    heads = {(path.layer, path.head) for path in paths}
    bottom = min((path.layer for path in paths), default=0)
    lowest = [path for path in paths if path.layer == bottom]
    above = [path.rise for path in paths if path.layer > bottom]
    query, elsewhere = ([path.rise for path in paths if (path.place == 0) == own] for own in (True, False))
    back = {step for path in paths if (step := _reaches_back(path))}
    way = WAYS[(2 in back) + 2 * (3 in back)]
    beyond = {(path.place, path.to) for path in paths if not within_pair(path.place, path.to)}
    straight = {(0, 2 * step) for step in range(1, n_steps + 1)}
    return {
        "paths": len(paths),
        "heads": len(heads),
        "share": len(heads) / n_heads,
        "pairs_first": _mean([within_pair(path.place, path.to) for path in lowest]),
        "query_first": _mean([path.place == 0 for path in lowest]),
        "kept": kept,
        "removed": min(above, default=0.0),
        "at_query": min(query, default=0.0),
        "elsewhere": max(elsewhere, default=0.0),
        "first": max((path.rise for path in lowest), default=0.0),
        **{name: float(bool(paths) and name == way) for name in WAYS},
        "not_straight": float(bool(paths) and beyond != straight),
        "spare": len(heads) - 3,
        "by_layout": by_layout - 3,
    }


def within_pair(place: int, to: int) -> bool:
    """True where a path leads from the second symbol of a pair to the first."""
    return place > 0 and place % 2 == 0 and to == place - 1


def _mean(values: list[bool]) -> float:
    return sum(values) / len(values) if values else 0.0


def _reaches_back(path: ChainPath) -> int:
    """The step of the pair that a path leads from to a pair of an earlier step; 0: it does not."""
    step, to = (path.place + 1) // 2, (path.to + 1) // 2
    return step if 0 < to < step else 0


def of_courses(found: Mapping[tuple[int, int], xr.DataArray]) -> dict[str, float]:
    """The effects of attention along paths; all count as coming at once without an induction head or another path."""
    onsets = {path: onset(course >= LEVEL) for path, course in found.items()}
    pairs = [onset for path, onset in onsets.items() if within_pair(*path)]
    others = [onset for path, onset in onsets.items() if not within_pair(*path) and path != INDUCTION]
    complete = max(min(pairs), onsets[INDUCTION]) if pairs and INDUCTION in onsets else None
    return {
        "induction_first": min(others) - complete if others and complete is not None else 0.0,
        "width": _width(found[INDUCTION]) if INDUCTION in found else 1.0,
        "spread": max(onsets.values()) - min(onsets.values()) if onsets else 0.0,
    }


def onset(holds: xr.DataArray) -> float:
    """The first kept step at which something holds; the last step + 1 if there is none."""
    return float(first_true_step(holds).fillna(holds.step[-1] + 1))


def _width(course: xr.DataArray) -> float:
    """The time that attention takes from .2 to .5, as a share of the steps until then."""
    there = onset(course >= LEVEL)
    before = course.step.values[(course.values <= LOW) & (course.step.values < there)]
    return (there - float(before[-1] if len(before) else 0)) / max(there, 1)
