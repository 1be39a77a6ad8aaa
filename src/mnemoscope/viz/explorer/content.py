"""What a page holds of a run besides its weights: names of tokens, sequences of the task, what is known of parts.

A subject, a model with a task, is as a run with one checkpoint and nothing logged.

The library knows no task. So the page has sequences that the task drew, its minimal pairs of them, and the rows of its
exact predictors; a task whose report entry has an `explorer` computes these in the page for any sequence.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.positions import names_of
from mnemoscope.core.protocols import Task
from mnemoscope.core.seeding import generator
from mnemoscope.core.subject import Subject
from mnemoscope.models.run import Run
from mnemoscope.models.zoo import word_for
from mnemoscope.viz.curves import skills_in
from mnemoscope.viz.explorer.packing import Packer, page_configuration
from mnemoscope.viz.guesses import symbols_of
from mnemoscope.viz.plain_report import without_parts
from mnemoscope.viz.reporting import report_of

MAX_TOKENS = 4096
"""Of the reference set, over which means are taken."""
MAX_SEQUENCES = 256
MAX_EXAMPLES = 48
"""Sequences to draw from, each with its minimal pairs."""
MAX_ROWS = 1_000_000
"""Numbers in all rows of exact predictors; with them go fewer examples."""
MAX_POINTS = 300
"""Of a curve."""


def run_content(run: Run, packer: Packer) -> dict[str, Any]:
    """A run as plain data; tensors are numbers of `packer`.

    Raises:
        InputError: It has no checkpoint, or a model that the page cannot run.
    """
    subject = Subject(model=run.model(), task=run.spec.task, seed=run.spec.seed)
    name = word_for(run.path)
    return {
        **_with_task(subject, packer),
        "name": name,
        "label": run.label,
        "steps": list(run.steps),
        "checkpoints": [packer.checkpoint(model) for _, model in run.models()],
        "curves": _curves(run),
        "python": {
            "start": f"run = ms.open_run({json.dumps(name)})",
            "model": "run.model(STEP)",
            "drawn": _drawn("run.spec", subject.task),
        },
    }


def subject_content(subject: Subject, packer: Packer) -> dict[str, Any]:
    """A model with a task as plain data; tensors are numbers of `packer`.

    Raises:
        InputError: The page cannot run the model.
    """
    return {
        **_with_task(subject, packer),
        "name": None,
        "label": subject.task.name.replace("_", " "),
        "steps": [0],
        "checkpoints": [packer.checkpoint(subject.model)],
        "curves": None,
        "python": {
            "start": "# subject: the ms.Subject that this page was made of",
            "model": "subject.model",
            "drawn": _drawn("subject", subject.task),
        },
    }


def _with_task(subject: Subject, packer: Packer) -> dict[str, Any]:
    """What is known of a model and its task besides weights, training and where it comes from."""
    configuration = page_configuration(subject.model)
    task, seed = subject.task, subject.seed
    sequences = reference_set(task, seed)
    scored = sequences.scored.any(0).nonzero()[:, 0].tolist()
    return {
        "seed": seed,
        "cfg": configuration,
        **_parts(subject),
        "task": {"name": task.name, "fields": _fields(task)},
        "symbols": symbols_of(task),
        "positions": list(names_of(task)),
        "answers": list(task.answers),
        "slot": task.slot_size,
        "scored": scored,
        "alphabet": sorted(sequences.inputs.unique().tolist()),
        "reference": sequences.inputs.tolist(),
        "classes": classes_of(sequences),
        "references": list(task.references),
        "best": min(task.references, key=lambda name: _loss(task, sequences, name), default=None),
        "examples": _examples(task, sequences, seed, packer),
    }


def reference_set(task: Task, seed: int) -> Batch:
    """The sequences that means are taken over, and the first of which can be drawn; unseen ones."""
    return task.sample(n_reference(task.n_ctx), split="test", generator=generator(seed, "explorer"))


def classes_of(batch: Batch) -> dict[str, list[int]]:
    """By latent the class of every sequence: latents that hold one whole number a sequence, and several classes of more
    than one sequence on average.
    """
    found = {}
    for name, value in batch.latents.items():
        if value.shape != (len(batch),) or value.is_floating_point() or value.is_complex():
            continue
        if 1 < len(value.unique()) <= len(batch) / 2:
            found[name] = value.long().tolist()
    return found


def _drawn(name: str, task: Task) -> str:
    """The reference set in Python, by what has the task and the seed there."""
    n = n_reference(task.n_ctx)
    return f'{name}.task.sample({n}, split="test", generator=ms.generator({name}.seed, "explorer"))'


def n_reference(n_pos: int) -> int:
    """How many sequences of a length a page holds."""
    return max(16, min(MAX_SEQUENCES, MAX_TOKENS // n_pos))


def _loss(task: Task, sequences: Batch, name: str) -> float:
    """Of an exact predictor on the reference set, in nats; infinite where it is undefined."""
    rows = task.reference(sequences, name)[sequences.scored]
    loss = float(-rows.gather(1, sequences.targets[sequences.scored][:, None]).log().mean())
    return math.inf if math.isnan(loss) else loss


def _examples(task: Task, sequences: Batch, seed: int, packer: Packer) -> list[dict[str, Any]]:
    """The first sequences, each with its group, its minimal pairs and, unless the page computes them, exact rows."""
    tabled = report_of(task).explorer is None
    n = min(MAX_EXAMPLES, len(sequences))
    if tabled:
        per_example = int(sequences.scored.sum(1).max()) * task.d_vocab * len(task.references)
        n = max(4, min(n, MAX_ROWS // (per_example * (1 + len(task.corruptions)))))
    chosen = sequences.select(slice(0, n))
    groups = task.subgroups(chosen)
    found = []
    for row in range(n):
        one = chosen.select(slice(row, row + 1))
        pairs = {}
        for kind in task.corruptions:
            if (other := _corrupted(task, one, kind, seed)) is not None:
                pairs[kind] = _sequence(task, other, packer, tabled=tabled)
        group = next((name for name, rows in groups.items() if bool(rows[row])), "")
        found.append({**_sequence(task, one, packer, tabled=tabled), "group": group, "pairs": pairs})
    return found


def _corrupted(task: Task, one: Batch, kind: str, seed: int) -> Batch | None:
    """A minimal pair of one sequence; None: there is none of this kind."""
    try:
        return task.corrupt(one, kind=kind, generator=generator(seed, "explorer", kind))
    except InputError:
        return None


def _sequence(task: Task, one: Batch, packer: Packer, *, tabled: bool) -> dict[str, Any]:
    """Tokens, and the rows of exact predictors where they are not NaN."""
    found: dict[str, Any] = {"tokens": one.inputs[0].tolist()}
    if tabled:
        rows = {name: task.reference(one, name)[0] for name in task.references}
        places = one.scored[0].nonzero()[:, 0]
        found["places"] = places.tolist()
        found["rows"] = {name: packer.pack(row[places].half().float()) for name, row in rows.items()}
    return found


def _parts(subject: Subject) -> dict[str, Any]:
    """What parts are called, and the accuracy of every skill when each is mean-ablated."""
    needed = without_parts(subject.model, subject.task, subject.seed)
    if not needed or "accuracy" not in needed["ablation"]:
        return {"roles": {}, "needs": None}
    found = needed["ablation"].sel(kind="mean")
    components = [str(name) for name in found.component.values]
    roles = dict(zip(components, map(str, found.role.values), strict=True))
    accuracy = {name: found.accuracy.isel(role=i).values.tolist() for i, name in enumerate(components)}
    skills = [str(name) for name in found.skill.values]
    clean = found.clean_accuracy.values.tolist()
    return {"roles": roles, "needs": {"skills": skills, "clean": clean, "without": accuracy, "n": found.attrs["n"]}}


def _curves(run: Run) -> dict[str, Any] | None:
    """Accuracy of every skill on unseen sequences during training, or the loss; None: nothing was logged."""
    if not (run.path / "metrics.jsonl").exists():
        return None
    metrics = run.metrics()
    names = [f"test_{skill}" for skill in skills_in(metrics)] or ["test_loss"]
    every = max(1, metrics.sizes["step"] // MAX_POINTS)
    kept = metrics.isel(step=slice(None, None, every))
    values = {name.removeprefix("test_"): [round(float(v), 4) for v in kept[name].values] for name in names}
    return {"steps": kept.step.values.tolist(), "values": values, "share": names != ["test_loss"]}


def _fields(task: Task) -> Mapping[str, Any]:
    """The task's configuration, as far as it is numbers, words or lists of them."""
    values = {f.name: getattr(task, f.name) for f in dataclasses.fields(task)}
    plain = (bool, int, float, str, type(None))
    return {name: value for name, value in values.items() if isinstance(value, plain)}
