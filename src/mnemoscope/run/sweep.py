"""Sweeps over configurations: what is trained for every combination of values, and what came out as labelled arrays.

A sweep names a preset, axes and seeds. An axis is a field of the configuration with its values, or a name whose values
set several fields at once, such as a width that heads and MLP follow. Every cell is a run in a separate directory, so
a sweep that was interrupted continues, and axes may be extended later.

With `largest` the cells are searched: of some fields (such as how many facts there are) the largest value is found with
which a run learns its task, that is, stops early (`recipe.stop_at`). The search goes through a geometric scale by
bisection, and assumes that what is larger is harder. Where several alternatives are allowed (`best_of`), such as rates,
a value counts as learned if a run of any of them learns it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.presets import label_of, preset
from mnemoscope.core.runtime import progress
from mnemoscope.core.specification import RunSpec
from mnemoscope.models.building import build_untrained, detached_parameters, held_patterns, matching_names
from mnemoscope.models.run import Run, run_place
from mnemoscope.run.executor import analyse_many, one_thread, train_many
from mnemoscope.training.loop import train
from mnemoscope.training.recorder import Report

Changes = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SizeSearch:
    """The target of a search: the largest value with which a run learns its task."""

    fields: tuple[str, ...]
    """Fields that take the value, such as `task.n_subjects` and `task.n_relations`."""
    between: tuple[int, int]
    """Smallest and largest value."""
    per_octave: int = 8
    """Values of the scale between a value and its double; whole numbers are rounded."""

    def __post_init__(self) -> None:
        if not self.fields:
            raise InputError("sweep.largest.fields must name at least one field; got none")
        in_range("sweep.largest.between, its first number,", self.between[0], 1, self.between[1])
        in_range("sweep.largest.per_octave", self.per_octave, 1, float("inf"))

    @property
    def scale(self) -> list[int]:
        """The values that are tried, ascending."""
        low, high = self.between
        n = int(np.floor(np.log2(high / low) * self.per_octave + 1e-9))
        return sorted({*(round(low * 2 ** (k / self.per_octave)) for k in range(n + 1)), high})


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A preset with some fields varied, over seeds."""

    preset: str
    seeds: tuple[int, ...]
    axes: Mapping[str, tuple[Any, ...]] = field(hash=False)
    """Field to its values; or a name to values that are mappings of fields, labelled by the first of each."""
    recipe: str = "quick"
    changes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The fields that differ from the preset in all cells."""
    largest: SizeSearch | None = None
    """Searched in every cell; none: every cell is one run per seed."""
    best_of: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, hash=False)
    """Field to alternatives, the first one tried first; for searches."""

    def __post_init__(self) -> None:
        for name, given in (("axes", self.axes), ("seeds", self.seeds), *self.axes.items(), *self.best_of.items()):
            if not given:
                raise InputError(f"sweep: {name} must hold at least one value; got none")
            if not isinstance(given, Mapping) and len(set(map(_label, given))) < len(given):
                raise InputError(f"sweep: the values of {name} must differ; got {list(map(_label, given))}")
        in_range("sweep: a seed", min(self.seeds), 0, float("inf"))
        if self.best_of and self.largest is None:
            raise InputError("sweep.best_of is for searches; name the fields that are searched in sweep.largest")
        if self.largest is not None and self.spec({}, self.seeds[0]).recipe.stop_at is None:
            raise InputError("sweep.largest needs recipe.stop_at, the accuracy at which a task counts as learned")
        for cell in self.cells().values():
            self.spec(cell, self.seeds[0])

    def cells(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Labels along the axes to the changes of every combination of values."""
        found = {}
        for values in product(*self.axes.values()):
            changes: dict[str, Any] = {}
            for name, value in zip(self.axes, values, strict=True):
                changes |= value if isinstance(value, Mapping) else {name: value}
            found[tuple(map(_label, values))] = changes
        return found

    def spec(self, changes: Changes, seed: int) -> RunSpec:
        """The run of a cell and a seed; errors are those of `preset`."""
        return preset(self.preset, self.recipe, seed, changes={**self.changes, **changes})

    def specs(self) -> list[RunSpec]:
        """All runs of a sweep without a search, seed by seed in every cell."""
        return [self.spec(changes, seed) for changes in self.cells().values() for seed in self.seeds]

    def to_dataset(self, values: Sequence[Mapping[str, float]], **attrs: Any) -> xr.Dataset:
        """Values by name, one set per cell and seed in the order of `specs`, over the axes and `seed`."""
        sizes = [*(len(values) for values in self.axes.values()), len(self.seeds)]
        coords = {name: list(map(_label, values)) for name, values in self.axes.items()}
        data = {
            name: ((*self.axes, "seed"), np.reshape([row.get(name, np.nan) for row in values], sizes))
            for name in dict.fromkeys(name for row in values for name in row)
        }
        names = {"preset": self.preset, "recipe": self.recipe}
        return xr.Dataset(data, coords={**coords, "seed": list(self.seeds)}, attrs={**names, **attrs})


def _label(value: Any) -> Any:
    return next(iter(value.values())) if isinstance(value, Mapping) else value


def run_path(out: Path, spec: RunSpec) -> Path:
    """The directory below `out` for the run of a specification; one with its earlier label keeps it."""
    earlier = run_place(out, spec.label, spec.seed)
    return earlier if earlier.exists() else run_place(out, label_of(spec), spec.seed)


def train_sweep(sweep: Sweep, out: Path, *, jobs: int = 1, report: Report | None = None) -> list[Run]:
    """Train every cell and return the runs in the order of `Sweep.specs`; see `train_many` for arguments and errors."""
    specs = sweep.specs()
    return train_many(specs, [run_path(out, spec) for spec in specs], jobs=jobs, report=report)


def final_metrics(sweep: Sweep, runs: Sequence[Run]) -> xr.Dataset:
    """The last line that training logged, of every run.

    The sweep is without a search, and `runs` are as `train_sweep` returns them.

    Returns over the axes and seed: the metrics of the last line, `last_step`, and `parameters`, how many are trained.
    """
    return sweep.to_dataset([_last_metrics(run) for run in runs])


def _last_metrics(run: Run) -> dict[str, float]:
    last = run.metrics().isel(step=-1)
    metrics = {str(name): float(value) for name, value in last.data_vars.items()}
    return {**metrics, "last_step": run.last_step, "parameters": n_trained(run.spec)}


def n_trained(spec: RunSpec) -> int:
    """The number of parameters that training may move, frozen schedules aside."""
    found = detached_parameters(build_untrained(spec, own=True))
    still = matching_names(held_patterns(spec.model), list(found))
    return sum(value.numel() for name, value in found.items() if name not in still)


def over_sweep(
    sweep: Sweep, runs: Sequence[Run], measure: Callable[[Run], Mapping[str, float]], *, jobs: int = 1
) -> xr.Dataset:
    """Any numbers per run, over the axes and seed.

    The sweep is without a search, and `runs` are as `train_sweep` returns them. `measure` is a function of a module,
    from a run to numbers by name.
    """
    return sweep.to_dataset(list(progress(analyse_many(runs, measure, jobs=jobs), of=len(runs))))


def search_sweep(
    sweep: Sweep, out: Path, *, jobs: int = 1, report: Callable[[int, int], None] | None = None
) -> xr.Dataset:
    """The largest value of every cell and seed; runs that are there already are read, not trained.

    The sweep must have a search, or InputError is raised. `report` is called with the number of searches that have
    ended, and of all.

    Returns over the axes and seed: `largest`, 0 where not even the smallest value is learned, and `parameters`, how
    many are trained there.
    """
    if sweep.largest is None:
        raise InputError("sweep.largest is missing: name the fields to search, and between which values")
    work = [(changes, seed) for changes in sweep.cells().values() for seed in sweep.seeds]
    found = []
    for each in progress(analyse_many(work, partial(_search, sweep, out), jobs=jobs), of=len(work)):
        found.append(each)
        if report:
            report(len(found), len(work))
    return sweep.to_dataset(found, searched=", ".join(sweep.largest.fields), scale=sweep.largest.scale)


def _search(sweep: Sweep, out: Path, cell: tuple[Changes, int]) -> dict[str, float]:
    """Bisection on the scale: everything up to `low` counts as learned, everything from `high` on as not."""
    changes, seed = cell
    assert sweep.largest is not None
    scale = sweep.largest.scale
    low, high = -1, len(scale)
    while high - low > 1:
        middle = (low + high) // 2
        if _is_learned(sweep, out, {**changes, **dict.fromkeys(sweep.largest.fields, scale[middle])}, seed):
            low = middle
        else:
            high = middle
    return {"largest": scale[low] if low >= 0 else 0, "parameters": n_trained(sweep.spec(changes, seed))}


def _is_learned(sweep: Sweep, out: Path, changes: Changes, seed: int) -> bool:
    """True if the run of any alternative stops before its last step."""
    for values in product(*sweep.best_of.values()):
        spec = sweep.spec({**changes, **dict(zip(sweep.best_of, values, strict=True))}, seed)
        with one_thread():
            run = train(spec, run_path(out, spec))
        if run.last_step < spec.recipe.n_steps:
            return True
    return False
