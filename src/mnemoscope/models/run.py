"""Run directories: what one training run left behind, and how to read it.

`run.json` holds specification, versions and command; `metrics.jsonl` one line of progress every so many steps;
`checkpoints/00001500.safetensors` the model after that many steps; `trajectory.json` what was measured of every
checkpoint after training; `last.safetensors` parameters and optimiser
state for continuing; `done` says that training ended.
"""

import json
import math
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import xarray as xr

from mnemoscope.core import guests
from mnemoscope.core.batch import loss_unit
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.html import html_table
from mnemoscope.core.presets import PRESETS, label_of
from mnemoscope.core.protocols import VectorTask
from mnemoscope.core.seeding import fixed_defaults
from mnemoscope.core.specification import TASKS, RunSpec
from mnemoscope.core.version import __version__
from mnemoscope.models.building import build_untrained, usable_device
from mnemoscope.models.checkpoint import load_checkpoint, load_compact, weights_digest
from mnemoscope.models.derived import TRAJECTORY, with_digests, write_derived
from mnemoscope.models.files import read_progress, write_atomically
from mnemoscope.models.glance import checkpoint_steps, no_runs_error, read_run_file, run_folders
from mnemoscope.models.lens import HookedTransformer
from mnemoscope.models.zoo import listed_digests, unpack_word

COMPACT = ".compact.safetensors"
"""The end of the name of a compact checkpoint."""


@dataclass(frozen=True)
class Run:
    """A run directory and the specification that it was made with.

    >>> run.label, run.spec.seed, run.finished
    ('v3-quick', 16, True)
    >>> run.model().cfg.n_heads
    2
    """

    path: Path
    spec: RunSpec
    prepare: Callable[[HookedTransformer, RunSpec, int], HookedTransformer | None] | None = None
    """Changes every model that is loaded, or replaces it, from the specification and the step (`analyses.with_clamps`,
    `models.run_with_dictionaries`)."""
    view: str = ""
    """End of the label, of a run that prepares its models."""

    @property
    def label(self) -> str:
        """Preset and recipe: what runs that differ in the seed only have in common."""
        return label_of(self.spec) + self.view

    def _repr_html_(self) -> str:
        """The place of the run, its progress, and the last measurements, for notebooks."""
        logged = (self.path / "metrics.jsonl").exists()
        last = self.metrics().isel(step=-1).data_vars.items() if logged else ()
        rows = [("directory", self.path), ("state", "finished" if self.finished else "not finished")]
        rows.append(("checkpoints", f"{len(self.steps)}, the last of step {self.steps[-1]}" if self.steps else "none"))
        rows += [(str(name).replace("_", " "), f"{float(value):.4g}") for name, value in last]
        return html_table(f"{self.label}, seed {self.spec.seed}", rows)

    @property
    def finished(self) -> bool:
        """True if training came to its end."""
        return (self.path / "done").exists()

    @property
    def last_step(self) -> int:
        """The step that training ended with, or ends with unless it stops early."""
        return read_run_file(self.path).get("last_step", self.spec.recipe.n_steps)

    @property
    def kept_steps(self) -> tuple[int, ...]:
        """Steps of which training keeps a checkpoint, up to the one that it ended with."""
        last = self.last_step
        return (*(step for step in self.spec.recipe.checkpoints if step < last), last)

    @property
    def kept(self) -> tuple[int, ...]:
        """Old name of `kept_steps`."""
        warnings.warn("Run.kept is now Run.kept_steps", FutureWarning, stacklevel=2)
        return self.kept_steps

    @property
    def final_weights(self) -> str | None:
        """SHA-256 of the weights that training ended with, as run.json has it; None: an older or unfinished run."""
        return read_run_file(self.path).get("final_weights")

    @property
    def origin(self) -> Mapping[str, str]:
        """The record of the first step of training: `initial_weights` and `first_batches` (SHA-256), `device` and
        `machine`; of a run of the zoo what the manifest lists, with `final_weights` and `replay`. Empty: an older run.
        """
        return {**listed_digests(self.path), **read_run_file(self.path).get("origin", {})}

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps of which a checkpoint exists, ascending."""
        return checkpoint_steps(self.path)

    def checkpoint_path(self, step: int) -> Path:
        """The place of the checkpoint after `step` steps, existing or not; a compact one only where no other is."""
        whole = self.path / "checkpoints" / f"{step:08d}.safetensors"
        compact = whole.with_suffix(COMPACT)
        return compact if compact.exists() and not whole.exists() else whole

    def model(self, step: int | None = None, *, device: torch.device | str = "cpu") -> HookedTransformer:
        """The model after `step` steps; none: the last checkpoint.

        It is TransformerLens's `HookedTransformer` where the installed line has one. Raises InputError where there is
        no such checkpoint, or the device cannot be used.
        """
        return self._model(step, device, own=False)

    def hooked(self, step: int | None = None, *, device: torch.device | str = "cpu") -> HookedTransformer:
        """As `model`, of the package's own class: the same weights, hooks and numbers without the import of
        TransformerLens, which takes longer than most analyses of our own runs.
        """
        return self._model(step, device, own=True)

    @fixed_defaults()
    def _model(self, step: int | None, device: torch.device | str, *, own: bool) -> HookedTransformer:
        device = usable_device(device)
        if not self.steps:
            raise InputError(f"{self.path} has no checkpoint yet; train it first")
        step = self.steps[-1] if step is None else step
        one_of(f"the step of {self.path}", step, self.steps)
        path = self.checkpoint_path(step)
        if path.name.endswith(COMPACT):
            model = load_compact(path, self.untrained(own=own)).to(device, print_details=False)
        else:
            model = load_checkpoint(path, device=device, own=own)
        if self.prepare is not None:
            model = self.prepare(model, self.spec, step) or model
        return model

    def models(self) -> Iterator[tuple[int, HookedTransformer]]:
        """All checkpoints, from the first step to the last."""
        return ((step, self.model(step)) for step in self.steps)

    def untrained(self, *, own: bool = False) -> HookedTransformer:
        """The same architecture and seed before training, built anew (a control); `own`: as `hooked`."""
        return build_untrained(self.spec, own=own).eval()

    def metrics(self) -> xr.Dataset:
        """Training progress: one variable a metric, along `step`.

        Raises InputError where nothing was logged yet, or the file is damaged.
        """
        file = self.path / "metrics.jsonl"
        if not file.exists():
            raise InputError(f"{self.path} has no metrics yet; train it first")
        lines = read_progress(file, finished=self.finished)
        names = [name for name in lines[0] if name != "step"]
        return xr.Dataset(
            {name: ("step", [line[name] for line in lines]) for name in names},
            coords={"step": [line["step"] for line in lines]},
            attrs={"loss_unit": loss_unit(vectors=isinstance(self.spec.task, VectorTask)), "preset": self.spec.preset},
        )

    @property
    def trajectory_path(self) -> Path:
        """The file with what was measured of every checkpoint."""
        return self.path / TRAJECTORY

    def trajectory(self) -> xr.Dataset | None:
        """Measures of every checkpoint along `step`; None where none were taken."""
        if not self.trajectory_path.exists():
            return None
        try:
            return read_trajectory(self.trajectory_path.read_text(encoding="utf-8"))
        except (ValueError, KeyError) as error:
            raise InputError(
                f"{self.trajectory_path} cannot be read: {error}; `mnemoscope evaluate --checkpoints` makes it"
            ) from None

    def write_trajectory(self, measures: xr.Dataset) -> None:
        """Keep measures of every checkpoint, variables along `step`, with the digests of the weights measured.

        Raises InputError for models with clamps: the file is of the models as they are.
        """
        if self.prepare is not None:
            raise InputError(f"{self.trajectory_path} is of models without clamps; measure the run as it is")
        places = {step: self.checkpoint_path(step) for step in measures.step.values.tolist()}
        whole = {step: place for step, place in places.items() if place.exists() and not place.name.endswith(COMPACT)}
        weights = {str(step): weights_digest(place)[1] for step, place in whole.items()}
        write_derived(self.path, TRAJECTORY, trajectory_text(measures, weights).encode())


def trajectory_text(measures: xr.Dataset, weights: Mapping[str, str] = MappingProxyType({})) -> str:
    """Variables along `step` as JSON, and digests of the weights by step; seven digits are kept.

    `read_trajectory` is its inverse, but for the digests.
    """
    columns = {
        str(name): [None if math.isnan(value) else float(f"{value:.7g}") for value in column.values.tolist()]
        for name, column in measures.data_vars.items()
    }
    attrs = {str(name): value for name, value in measures.attrs.items()}
    of = {"weights": dict(weights)} if weights else {}
    return json.dumps({"step": measures.step.values.tolist(), "measures": columns, "attrs": attrs, **of}) + "\n"


def read_trajectory(text: str) -> xr.Dataset:
    """The trajectory in a text of `trajectory_text`; raises ValueError or KeyError where it is something else."""
    content = json.loads(text)
    columns = {
        name: ("step", [math.nan if value is None else value for value in column])
        for name, column in content["measures"].items()
    }
    return xr.Dataset(columns, coords={"step": content["step"]}, attrs=content["attrs"])


def create_run(path: Path, spec: RunSpec) -> Run:
    """Make the run directory of `spec`, or open the one that exists; refuses one with another specification."""
    if (path / "run.json").exists():
        run = _read(path)
        if run.spec != spec:
            raise InputError(f"{path} holds a run with another specification; choose another directory or delete it")
        return run
    packages = ("torch", "transformer-lens")
    guest = guests.source_of(type(spec.task).__module__)
    content = {
        **spec.to_dict(),
        **({"guest": guest} if guest else {}),
        "versions": {
            "python": platform.python_version(),
            "mnemoscope": __version__,
            **{name: version(name) for name in packages},
        },
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_atomically(path / "run.json", (json.dumps(content, indent=2) + "\n").encode())
    return Run(path, spec)


def machine() -> str:
    """The kind of this machine: what has to be equal for equal bits, as far as names say it."""
    return f"{platform.system()} {platform.machine()}, torch {torch.__version__}"


def write_origin(run: Run, origin: Mapping[str, str]) -> None:
    """Write down the start of a run; see `Run.origin`."""
    content = json.dumps({**read_run_file(run.path), "origin": dict(origin)}, indent=2)
    write_atomically(run.path / "run.json", (content + "\n").encode())


def finish_run(run: Run, step: int) -> None:
    """Write down that training ended with `step`, with which weights, and the digests of what was logged."""
    _, weights = weights_digest(run.checkpoint_path(step))
    early = {"last_step": step} if step < run.spec.recipe.n_steps else {}
    found = with_digests(run.path, {**read_run_file(run.path), **early, "final_weights": weights})
    content = json.dumps(found, indent=2)
    write_atomically(run.path / "run.json", (content + "\n").encode())
    write_atomically(run.path / "done", b"")


def open_run(path: str | Path) -> Run:
    """The run in that directory, or one that came with the package, `zoo:<configuration>/seed-<seed>`.

    Raises InputError where the directory is no run, its run.json cannot be read, or the word names no run or several.

    >>> ms.open_run("zoo:v3-quick/seed-16").label
    'v3-quick'
    """
    found = unpack_word(path)
    if found is None:
        return _read(Path(path))
    if len(found) > 1:
        raise InputError(f"{path} names {len(found)} runs; choose one, such as zoo:{'/'.join(found[0].parts[-2:])}")
    return _read(found[0])


def _read(path: Path) -> Run:
    content = read_run_file(path)
    try:
        return Run(path, RunSpec.from_dict(content))
    except InputError as error:
        raise InputError(f"{path / 'run.json'}: {error}{_import_hint(content)}") from None


def _import_hint(content: Mapping[str, Any]) -> str:
    """The option that brings the task of a run, where none of that name is registered."""
    task = content.get("task")
    name = task.get("name") if isinstance(task, dict) else None
    if name is None or name in TASKS.names():
        return ""
    if guest := content.get("guest"):
        return f"; the run was trained with --import {guest}: give it again"
    return "; a task of your own is found with --import FILE"


def find_runs(paths: str | Path | Sequence[Path], *, without_checkpoint: bool = False) -> list[Run]:
    """All runs at or below the given directories that have a checkpoint, in the order of the presets, then by seed.

    The word `zoo`, and words such as `zoo:<configuration>`, stand for the runs that came with the package.
    `without_checkpoint` takes those that have none too; there must be one that has one all the same. Raises InputError
    where one of the directories holds none, none is given, or there are no such runs in the zoo.

    >>> [each.spec.seed for each in ms.find_runs("zoo:v3-quick")][:2]
    [16, 17]
    """
    runs = []
    if not isinstance(paths, str | Path) and not paths:
        raise InputError("name at least one run directory, or a directory that holds some; got none")
    for path in [paths] if isinstance(paths, str | Path) else paths:
        everything = [_read(folder) for folder in run_folders(path)]
        found = [run for run in everything if run.steps]
        if not found:
            raise no_runs_error(Path(path))
        runs += everything if without_checkpoint else found
    known = PRESETS.names()
    rank = {name: place for place, name in enumerate(known)}
    return sorted(runs, key=lambda run: (rank.get(run.spec.preset, len(known)), run.label, run.spec.seed))


def run_place(directory: Path, label: str, seed: int) -> Path:
    """The directory of a run, or of what is made of it, below one that holds several: `<label>/seed-<seed>`."""
    return directory / label / f"seed-{seed:02}"


def by_label(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs grouped by configuration; within a group they differ in the seed only.

    Raises InputError where runs of one label have different configurations, or a seed occurs twice.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(run)
    for label, group in groups.items():
        if not all(run.spec.replicates(group[0].spec) for run in group):
            raise InputError(f"runs called {label} have different configurations; read them one directory at a time")
        _check_seeds(label, group)
    return groups


def _check_seeds(label: str, group: Sequence[Run]) -> None:
    """Refuse a seed that occurs twice, or a directory that was named twice."""
    seen: dict[int, Run] = {}
    for run in group:
        first = seen.get(run.spec.seed)
        if first is not None and first.path.resolve() == run.path.resolve():
            raise InputError(f"{run.path} is named twice; name every directory once, and none above or below it")
        if first is not None:
            raise InputError(
                f"seed {run.spec.seed} of {label} stands in two directories, {first.path} and {run.path}; "
                "name one of them, or move the other elsewhere"
            )
        seen[run.spec.seed] = run
