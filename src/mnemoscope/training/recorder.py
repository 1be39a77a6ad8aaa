"""Writes a run while it trains: checkpoints, metrics and the rolling state that it continues from.

Data and schedules are functions of the step, so parameters, the optimiser's moments and the step are enough.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mnemoscope.core.errors import InputError
from mnemoscope.models.building import build_untrained
from mnemoscope.models.checkpoint import read_tensors, save_checkpoint, write_tensors
from mnemoscope.models.files import read_progress, write_atomically
from mnemoscope.models.run import Run
from mnemoscope.training.learner import Learner, Moments
from mnemoscope.training.monitors import Line

_KIND = "training-state"


def state_path(run: Run) -> Path:
    """The file of the rolling state of a run."""
    return run.path / "last.safetensors"


def write_state(run: Run, step: int, params: Mapping[str, Tensor], moments: Moments) -> None:
    """Save parameters and the optimiser's moments after `step` updates."""
    tensors = {f"parameter/{name}": value for name, value in params.items()}
    tensors |= {f"{kind}/{name}": values[kind] for name, values in moments.items() for kind in values}
    write_tensors(state_path(run), tensors, {"kind": _KIND, "step": str(step)})


def last_step(run: Run) -> int:
    """Number of updates in the saved state; 0 where there is none."""
    return read_state(run).step if state_path(run).exists() else 0


@dataclass(frozen=True)
class TrainingState:
    """The saved state: parameters and the optimiser's moments after `step` updates."""

    step: int
    parameters: Mapping[str, Tensor]
    moments: Moments


def read_state(run: Run, device: torch.device | str = "cpu") -> TrainingState:
    """The saved state of a run.

    Raises InputError where the file is damaged; deleting it starts the run afresh.
    """
    try:
        tensors, metadata = read_tensors(state_path(run), _KIND)
    except InputError as error:
        raise InputError(f"{error}; without {state_path(run).name} the run starts afresh") from None
    params: dict[str, Tensor] = {}
    moments: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        kind, _, name = key.partition("/")
        if kind == "parameter":
            params[name] = value.to(device)
        else:
            moments.setdefault(name, {})[kind] = value.to(device)
    return TrainingState(int(metadata["step"]), params, moments)


@dataclass(frozen=True)
class Progress:
    """A line of metrics that was just measured."""

    path: Path
    step: int
    n_steps: int
    metrics: Mapping[str, float]


Report = Callable[[Progress], None]


class Recorder:
    """Writes one run's checkpoints, metrics and state at the steps that the recipe names.

    `start` is the number of updates made before, `skills` are those of `recipe.stop_at`.
    """

    def __init__(self, run: Run, start: int, skills: Sequence[str], report: Report | None):
        self._run, self._skills, self._report = run, skills, report
        self.model = build_untrained(run.spec, own=True)
        self._kept = frozenset(run.spec.recipe.checkpoints)
        before = read_progress(run.path / "metrics.jsonl", finished=False) if start else []
        self._lines = [line for line in before if line["step"] <= start]

    def record(self, step: int, learner: Learner, index: int, measured: Line | None) -> None:
        """Write the files of `step` updates; the state comes last, so that it never runs ahead of the rest."""
        recipe = self._run.spec.recipe
        if measured is not None:
            self._lines.append({"step": step, **measured})
        ends = self.ends_at(step)
        if step in self._kept or ends:
            self.model.load_state_dict({**self.model.state_dict(), **learner.parameters(index)})
            save_checkpoint(self.model, self._run.checkpoint_path(step), step=step)
        if self._report and self._lines[-1]["step"] == step:
            self._report(Progress(self._run.path, step, step if ends else recipe.n_steps, self._lines[-1]))
        if ends or (step and step % recipe.save_every == 0):
            text = "".join(json.dumps(line) + "\n" for line in self._lines)
            write_atomically(self._run.path / "metrics.jsonl", text.encode())
            write_state(self._run, step, learner.parameters(index), learner.moments(index))

    def writes_at(self, step: int) -> bool:
        """True if files are written after `step` updates, unless training ends early."""
        return step in self._kept or step % self._run.spec.recipe.save_every == 0

    def ends_at(self, step: int) -> bool:
        """True if training ends with `step`, at which all is measured: the last step, or one that is good enough."""
        spec, line = self._run.spec, self._lines[-1]
        if step == spec.recipe.n_steps or spec.recipe.stop_at is None or line["step"] != step:
            return step == spec.recipe.n_steps
        accuracies = [line[f"test_{skill}"] for skill in self._skills]
        return bool(accuracies) and min(accuracies) >= spec.recipe.stop_at
