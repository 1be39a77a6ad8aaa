"""The training loop: Adam on fresh samples, for one seed or for many seeds as one program.

A run that was interrupted, however hard, continues from its last saved state and ends with the same bytes as one
that never was: batches and schedules are functions of the step, and what was written after that state is written
again.

On a GPU as many seeds as its memory holds train as one program, one group after the other. The memory of a run is
counted on one update: parameters with gradient and moments, what the backward pass keeps, and the data. If that was too
little after all, groups are halved; runs continue from their last saved state.
"""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor

from mnemoscope.core.errors import InputError
from mnemoscope.core.seeding import fixed_defaults
from mnemoscope.core.specification import RunSpec
from mnemoscope.core.task import monitoring_batch
from mnemoscope.models.building import (
    build_untrained,
    detached_parameters,
    held_patterns,
    matching_names,
    usable_device,
)
from mnemoscope.models.files import HeldDirectory, hold_directory
from mnemoscope.models.run import Run, create_run, finish_run, write_origin
from mnemoscope.training.clamped import check_clamps
from mnemoscope.training.learner import Learner
from mnemoscope.training.monitors import Line, Monitors
from mnemoscope.training.origin import origins
from mnemoscope.training.recorder import Recorder, Report, last_step, read_state
from mnemoscope.training.schedule import (
    TrainingBatches,
    check_schedules,
    frozen_names,
    learning_rate,
    stack_batches,
    task_at,
)


def train(spec: RunSpec, path: Path, *, device: torch.device | str = "cpu", report: Report | None = None) -> Run:
    """Train one run in the directory `path`, or continue it, or do nothing if it is finished.

    The directory is made if absent. `report` is called with every line of metrics. Raises InputError where the device
    cannot be used, or the directory holds another run, is being trained by another process, or its state is damaged;
    or the loss is NaN or infinite, which ends training without the mark of a finished run.

    >>> spec = ms.preset("v3", changes={"recipe.n_steps": 4, "recipe.warmup_steps": 1})
    >>> ms.train(spec, Path("runs/tiny")).last_step
    4
    """
    return train_together([spec], [path], device=device, report=report)[0]


@fixed_defaults()
def train_together(
    specs: Sequence[RunSpec],
    paths: Sequence[Path],
    *,
    device: torch.device | str = "cpu",
    report: Report | None = None,
) -> list[Run]:
    """Train runs that differ in the seed only as one program; see `train` for arguments and errors.

    Runs that were interrupted at different steps continue in groups of equal step.
    """
    if not specs:
        raise InputError("there is nothing to train: name at least one run")
    if not all(spec.replicates(specs[0]) for spec in specs):
        raise InputError("runs that train together may differ in the seed only; train the others apart")
    check_schedules(specs[0])
    check_clamps(specs[0])
    device = usable_device(device)
    with ExitStack() as locks:
        runs = [create_run(Path(path), spec) for spec, path in zip(specs, paths, strict=True)]
        claims = {run.path: locks.enter_context(hold_directory(run.path)) for run in runs if not run.finished}
        unfinished = sorted((run for run in runs if not run.finished), key=last_step)
        for step, group in groupby(unfinished, key=last_step):
            members = list(group)
            _continue(members, [claims[run.path] for run in members], step, device, report)
    return runs


def _continue(
    runs: list[Run], claims: Sequence[HeldDirectory], start: int, device: torch.device, report: Report | None
) -> None:
    """Train runs that have made `start` updates to their end; raises InputError if the loss of some is not finite."""
    spec, recipe = runs[0].spec, runs[0].spec.recipe
    monitors = Monitors([run.spec for run in runs], device)
    recorders = [Recorder(run, start, monitors.skills, report) for run in runs]
    learner = _learner(runs, recorders, start, device)
    data = TrainingBatches([run.spec for run in runs], device)
    if start == 0:
        initial = [recorder.model.state_dict() for recorder in recorders]
        for run, origin in zip(runs, origins([run.spec for run in runs], initial, data), strict=True):
            write_origin(run, origin)
    always_held = matching_names(held_patterns(spec.model), learner.names)
    active, diverged = list(range(len(runs))), {}
    history: list[Tensor] = []  # losses that were not looked at yet: looking at each would wait for a GPU
    for step in range(start, recipe.n_steps + 1):
        for claim in claims:
            claim.check()
        if step > start or start == 0:
            measured = step % recipe.metrics_every == 0 or step == recipe.n_steps
            lines = monitors.lines(learner, active, step) if measured else [None] * len(active)
            if measured or recorders[0].writes_at(step):
                diverged |= _diverged(active, history, lines, step)
                history.clear()
            for i, (run, line) in enumerate(zip(active, lines, strict=True)):
                if run not in diverged:
                    recorders[run].record(step, learner, i, line)
        ended = [run for run in active if run in diverged or recorders[run].ends_at(step)]
        if ended:
            for run in ended:
                if run not in diverged:
                    finish_run(runs[run], step)
            if len(ended) == len(active):
                break
            left = [i for i, run in enumerate(active) if run not in ended]
            learner, data, active = learner.select_runs(left), data.select_runs(left), [active[i] for i in left]
        history.append(update(learner, data, spec, step, monitors.positions, always_held))
    if diverged:
        found = "; ".join(f"{runs[run].path} from step {step} on" for run, step in diverged.items())
        raise InputError(
            f"the training loss is not finite: {found}; training stopped there and is not marked as finished; lower "
            "recipe.learning_rate, or correct the loss of the task, and train in another directory"
        )


def update(
    learner: Learner, data: TrainingBatches, spec: RunSpec, step: int, positions: Tensor, held: frozenset[str]
) -> Tensor:
    """Make the update number `step` and return the losses before it; `held` parameters never move."""
    recipe = spec.recipe
    learner.hold(held | frozen_names(recipe, learner.names, step))
    losses = learner.losses(task_at(spec.task, recipe, step).loss, data.batch(step), positions, data.held(step))
    learner.update(losses, learning_rate=learning_rate(recipe, step))
    return losses.detach()


def _diverged(
    active: Sequence[int], history: Sequence[Tensor], lines: Sequence[Line | None], step: int
) -> dict[int, int]:
    """The runs whose loss is NaN or infinite, with the step at which it was so first, in updates made before."""
    found = {
        run: step
        for run, line in zip(active, lines, strict=True)
        if line is not None and not math.isfinite(line["train_loss"])
    }
    if history and not (finite := torch.stack(list(history)).isfinite()).all():
        first = (~finite).int().argmax(0).tolist()
        bad = (~finite).any(0).tolist()
        found |= {run: step - len(history) + first[i] for i, run in enumerate(active) if bad[i]}
    return found


def _learner(runs: list[Run], recorders: list[Recorder], start: int, device: torch.device) -> Learner:
    """The learner as it was after `start` updates."""
    model, recipe = runs[0].spec.model, runs[0].spec.recipe
    if start:
        states = [read_state(run, device) for run in runs]
        return Learner(model, recipe, [state.parameters for state in states], [state.moments for state in states])
    initial = [{n: v.to(device) for n, v in detached_parameters(recorder.model).items()} for recorder in recorders]
    return Learner(model, recipe, initial, [{} for _ in runs])


SHARE = 0.8
"""The share of the free memory that a group may take."""
TEMPORARY = 2
"""At its peak the backward pass holds its activations this many times: themselves and their gradients."""


def train_in_groups(
    specs: Sequence[RunSpec],
    paths: Sequence[Path],
    *,
    device: torch.device | str = "cpu",
    report: Report | None = None,
) -> list[Run]:
    """`train_together` in groups that the memory of the device holds, at least one run; on a CPU that is all."""
    if not specs:
        raise InputError("there is nothing to train: name at least one run")
    size = _fitting(specs[0], usable_device(device)) or len(specs)
    pairs = list(zip(specs, paths, strict=True))
    groups = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    return [run for group in groups for run in _train(group, device, report)]


def _train(group: Sequence[tuple[RunSpec, Path]], device: torch.device | str, report: Report | None) -> list[Run]:
    """Train a group, and its halves if it is too large."""
    specs, paths = zip(*group, strict=True)
    try:
        return train_together(specs, paths, device=device, report=report)
    except torch.OutOfMemoryError:
        if len(group) == 1:
            raise InputError(f"{device} has too little memory for one run of {specs[0].label}") from None
    middle = len(group) // 2  # outside of the handler, which keeps the failed group in memory
    return [run for half in (group[:middle], group[middle:]) for run in _train(half, device, report)]


def _fitting(spec: RunSpec, device: torch.device) -> int | None:
    """The number of runs that the free memory of a device holds, at least one; none: it was not looked up."""
    if device.type != "cuda":
        return None
    return max(1, int(SHARE * free_bytes(device) / bytes_of_run(spec, device)))


def free_bytes(device: torch.device) -> int:
    """Free memory of a GPU."""
    return torch.cuda.mem_get_info(device)[0]


def bytes_of_run(spec: RunSpec, device: torch.device | str = "cpu") -> int:
    """Memory that each run of a configuration takes while it trains with others, at its peak.

    Counted on two runs, since one alone is computed in another way.
    """
    specs = [spec, spec]
    initial = {name: value.to(device) for name, value in detached_parameters(build_untrained(spec, own=True)).items()}
    learner = Learner(spec.model, spec.recipe, [initial, initial], [{}, {}])
    data = TrainingBatches(specs, device)
    watched = stack_batches([monitoring_batch(spec.task, split="test", seed=spec.seed, device=device)] * 2)
    kept = 0
    for examples in (data.batch(0), watched):
        positions = examples.scored.flatten(0, 1).any(0).nonzero()[:, 0]
        storages: dict[int, int] = {}

        def note(value: Tensor, storages: dict[int, int] = storages) -> Tensor:
            storages[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
            return value

        with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
            learner.losses(spec.task.loss, examples, positions)
        kept = max(kept, sum(storages.values()) // 2)
    weights = sum(value.nbytes for value in initial.values())
    return 4 * weights + TEMPORARY * kept + data.nbytes // 2
