"""The content of a page on a run besides its weights: names of tokens, sequences of the task, knowledge of parts.

A subject, a model with a task, is as a run with one checkpoint and nothing logged.

The library knows no task. So the page has sequences that the task drew, its minimal pairs of them, and the rows of its
exact predictors; a task whose report entry has an `explorer` computes these in the page for any sequence.
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xarray as xr

from mnemoscope.core.batch import Batch
from mnemoscope.core.positions import names_of
from mnemoscope.core.protocols import Task
from mnemoscope.core.seeding import generator
from mnemoscope.explorer.examples import Exact, examples_of
from mnemoscope.explorer.packing import Packer, page_configuration
from mnemoscope.explorer.record import Code, Curves, Needs, PageTask, Record
from mnemoscope.models.run import Run
from mnemoscope.models.subjects import Subject
from mnemoscope.models.zoo import word_for
from mnemoscope.report.curves import skills_in
from mnemoscope.report.guesses import symbols_of
from mnemoscope.report.plain_report import without_parts
from mnemoscope.report.reporting import report_of

MAX_TOKENS = 4096
"""Most tokens of the reference set, over which means are taken."""
MAX_SEQUENCES = 256
MAX_POINTS = 300
"""Most points of a curve."""


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A run for a page."""

    run: Run
    n_checkpoints: int | None = None
    """Most checkpoints, evenly apart in their order, the last among them; None: all."""
    removed: xr.Dataset | None = None
    """From `ablate_by_role`, of the last checkpoint, if that was measured before; None: it is measured."""


def run_content(taken: Taken, packer: Packer) -> Record:
    """The page's record of a run; raises InputError where it has no checkpoint, or a model that the page cannot run."""
    run, removed = taken.run, taken.removed
    model, task = run.hooked(), run.spec.task
    configuration = page_configuration(model)
    if removed is None:
        removed = without_parts(model, task, run.spec.seed).get("ablation")
    name, steps = word_for(run.path), spread_out(run.steps, taken.n_checkpoints)
    return Record(
        **_with_task(Subject(model=model, task=task, seed=run.spec.seed), packer, removed),
        cfg=configuration,
        name=name,
        label=run.label,
        steps=steps,
        checkpoints=[packer.checkpoint(model if step == run.steps[-1] else run.hooked(step)) for step in steps],
        curves=_curves(run),
        python=Code(
            start=f"run = ms.open_run({json.dumps(name)})", model="run.model(STEP)", drawn=_drawn("run.spec", task)
        ),
    )


def spread_out(steps: Sequence[int], n: int | None) -> list[int]:
    """At most `n` of some steps, evenly apart in their order; the last among them, and the first if there is room."""
    if n is None or len(steps) <= n:
        return list(steps)
    last = len(steps) - 1
    return [steps[round(last - i * last / max(n - 1, 1))] for i in reversed(range(n))]


def subject_content(subject: Subject, packer: Packer) -> Record:
    """The page's record of a model with a task; raises InputError where the page cannot run the model."""
    configuration = page_configuration(subject.model)
    removed = without_parts(subject.model, subject.task, subject.seed).get("ablation")
    return Record(
        **_with_task(subject, packer, removed),
        cfg=configuration,
        name=None,
        label=subject.task.name.replace("_", " "),
        steps=[0],
        checkpoints=[packer.checkpoint(subject.model)],
        python=Code(
            start="# subject: the ms.Subject that this page was made of",
            model="subject.model",
            drawn=_drawn("subject", subject.task),
        ),
    )


def _with_task(subject: Subject, packer: Packer, removed: xr.Dataset | None) -> dict[str, Any]:
    """Fields of a record: what is known of a model and its task besides weights, training and where it comes from."""
    task, seed = subject.task, subject.seed
    sequences = reference_set(task, seed)
    table = Exact()
    examples = examples_of(task, sequences, seed, table if report_of(task).explorer is None else None)
    roles, needs = _parts(removed)
    return {
        "seed": seed,
        "roles": roles,
        "needs": needs,
        "task": PageTask(name=task.name, fields=_fields(task)),
        "symbols": symbols_of(task),
        "positions": list(names_of(task)),
        "answers": list(task.answers),
        "slot": task.slot_size,
        "scored": sequences.scored.any(0).nonzero()[:, 0].tolist(),
        "alphabet": sorted(sequences.inputs.unique().tolist()),
        "reference": sequences.inputs.tolist(),
        "classes": classes_of(sequences),
        "references": list(task.references),
        "best": min(task.references, key=lambda name: _loss(task, sequences, name), default=None),
        "examples": examples,
        "exact": table.packed(packer),
    }


def reference_set(task: Task, seed: int) -> Batch:
    """The sequences that means are taken over, and the first of which can be drawn; unseen ones."""
    return task.sample(n_reference(task.n_ctx), split="test", generator=generator(seed, "explorer"))


def classes_of(batch: Batch) -> dict[str, list[int]]:
    """By latent the class of every sequence, for latents with several classes of more than one sequence on average."""
    found = {}
    for name, value in batch.latents.items():
        if value.shape != (len(batch),) or value.is_floating_point() or value.is_complex():
            continue
        if 1 < len(value.unique()) <= len(batch) / 2:
            found[name] = value.long().tolist()
    return found


def _drawn(name: str, task: Task) -> str:
    """The reference set in Python, from the variables that hold the task and the seed there."""
    n = n_reference(task.n_ctx)
    return f'{name}.task.sample({n}, split="test", generator=ms.generator({name}.seed, "explorer"))'


def n_reference(n_pos: int) -> int:
    """The number of sequences of a given length that a page holds."""
    return max(16, min(MAX_SEQUENCES, MAX_TOKENS // n_pos))


def _loss(task: Task, sequences: Batch, name: str) -> float:
    """The loss of an exact predictor on the reference set, in nats; infinite where it is undefined."""
    rows = task.reference(sequences, name)[sequences.scored]
    loss = float(-rows.gather(1, sequences.targets[sequences.scored][:, None]).log().mean())
    return math.inf if math.isnan(loss) else loss


def _parts(removed: xr.Dataset | None) -> tuple[dict[str, str], Needs | None]:
    """The names of parts, and the accuracy of every skill when each is mean-ablated."""
    if removed is None or "accuracy" not in removed:
        return {}, None
    found = removed.sel(kind="mean")
    components = [str(name) for name in found.component.values]
    roles = dict(zip(components, map(str, found.role.values), strict=True))
    return roles, Needs(
        skills=[str(name) for name in found.skill.values],
        clean=found.clean_accuracy.values.tolist(),
        without={name: found.accuracy.isel(role=i).values.tolist() for i, name in enumerate(components)},
        n=int(found.attrs["n"]),
    )


def _curves(run: Run) -> Curves | None:
    """Accuracy of every skill on unseen sequences during training, or the loss; None: nothing was logged."""
    if not (run.path / "metrics.jsonl").exists():
        return None
    metrics = run.metrics()
    names = [f"test_{skill}" for skill in skills_in(metrics)] or ["test_loss"]
    every = max(1, metrics.sizes["step"] // MAX_POINTS)
    kept = metrics.isel(step=slice(None, None, every))
    values = {name.removeprefix("test_"): [round(float(v), 4) for v in kept[name].values] for name in names}
    return Curves(steps=kept.step.values.tolist(), values=values, share=names != ["test_loss"])


def _fields(task: Task) -> Mapping[str, Any]:
    """The task's configuration, as far as it is numbers, words or lists of them."""
    values = {f.name: getattr(task, f.name) for f in dataclasses.fields(task)}
    plain = (bool, int, float, str, type(None))
    return {name: value for name, value in values.items() if isinstance(value, plain)}
