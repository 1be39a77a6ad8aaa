"""The content of a page besides weights: names of tokens, sequences, exact predictors, knowledge of parts.

It is made of a run, of a subject, which is as a run with one checkpoint and nothing logged, or of a model with given
sequences, which has no predictors, pairs or roles.

The library knows no task. So the page has sequences that the task drew, its minimal pairs of them, and the rows of its
exact predictors; a task whose report entry has an `explorer` computes these in the page for any sequence.
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import xarray as xr
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.positions import position_names
from mnemoscope.core.protocols import HookedModel, Task, class_names, n_outputs
from mnemoscope.core.seeding import generator
from mnemoscope.explorer.clamps import run_clamps, without_clamps
from mnemoscope.explorer.packing import Packer, page_configuration
from mnemoscope.explorer.record import PageCode, PageExample, PageRecord, PageTask, SkillCurves, SkillNeeds
from mnemoscope.models.dictionaries import dictionary_files
from mnemoscope.models.run import Run
from mnemoscope.models.subjects import Subject
from mnemoscope.models.zoo import run_word
from mnemoscope.report.curves import skills_in
from mnemoscope.report.guesses import output_symbols, show_whitespace, token_symbols
from mnemoscope.report.plain_report import without_parts
from mnemoscope.report.task_report import find_report
from mnemoscope.report.task_words import task_words

MAX_TOKENS = 4096
"""Most tokens of the reference set, over which means are taken."""
MAX_SEQUENCES = 256
MAX_POINTS = 300
"""Most points of a curve."""


@dataclass(frozen=True, kw_only=True)
class SelectedRun:
    """A run for a page."""

    run: Run
    n_checkpoints: int | None = None
    """Most checkpoints, evenly apart in their order, the last among them; None: all."""
    removed: xr.Dataset | None = None
    """From `ablate_by_role`, of the last checkpoint, if that was measured before; None: it is measured."""


def run_content(taken: SelectedRun, packer: Packer) -> PageRecord:
    """The page's record of a run; raises InputError where it has no checkpoint, or a model that the page cannot run."""
    run, removed = without_clamps(taken.run), taken.removed
    model, task = run.hooked(), run.spec.task
    configuration = page_configuration(model)
    if removed is None:
        removed = without_parts(model, task, run.spec.seed).get("ablation")
    name, steps = run_word(run.path), choose_evenly(run.steps, taken.n_checkpoints)
    files = [file.as_posix() for file in dictionary_files(run)]
    start = f"run = ms.open_run({json.dumps(name)})"
    if files:
        start += f"\nrun = ms.models.run_with_dictionaries(run, {json.dumps(files)})"
    return PageRecord(
        **_with_task(Subject(model=model, task=task, seed=run.spec.seed), packer, removed),
        cfg=configuration,
        name=name,
        label=run.label,
        steps=steps,
        checkpoints=[packer.checkpoint(model if step == run.steps[-1] else run.hooked(step)) for step in steps],
        curves=_curves(run),
        clamps=run_clamps(run, steps, packer, shown=run is not taken.run),
        files=files,
        python=PageCode(
            start=start,
            model="run.model(STEP)",
            drawn=_reference_code("run.spec", task),
        ),
    )


def choose_evenly(steps: Sequence[int], n: int | None) -> list[int]:
    """At most `n` of some steps, evenly apart in their order; the last among them, and the first if there is room."""
    if n is None or len(steps) <= n:
        return list(steps)
    last = len(steps) - 1
    return [steps[round(last - i * last / max(n - 1, 1))] for i in reversed(range(n))]


def subject_content(subject: Subject, packer: Packer) -> PageRecord:
    """The page's record of a model with a task; raises InputError where the page cannot run the model."""
    configuration = page_configuration(subject.model)
    removed = without_parts(subject.model, subject.task, subject.seed).get("ablation")
    return PageRecord(
        **_with_task(subject, packer, removed),
        cfg=configuration,
        name=None,
        label=subject.task.name.replace("_", " "),
        steps=[0],
        checkpoints=[packer.checkpoint(subject.model)],
        python=PageCode(
            start="# subject: the ms.Subject that this page was made of",
            model="subject.model",
            drawn=_reference_code("subject", subject.task),
        ),
    )


def _with_task(subject: Subject, packer: Packer, removed: xr.Dataset | None) -> dict[str, Any]:
    """Fields of a record: what is known of a model and its task besides weights, training and where it comes from."""
    task, seed = subject.task, subject.seed
    sequences = reference_set(task, seed)
    table = ExactTable()
    examples = examples_of(task, sequences, seed, table if find_report(task).explorer is None else None)
    roles, needs = _parts(removed)
    return {
        "seed": seed,
        "roles": roles,
        "needs": needs,
        "task": PageTask(name=task.name, fields=_task_fields(task), about=task_words(task).about),
        "symbols": token_symbols(task),
        "outputs": output_symbols(task),
        "named": bool(class_names(task)),
        "positions": list(position_names(task)),
        "answers": list(task.answers),
        "slot": task.slot_size,
        "scored": sequences.scored.any(0).nonzero()[:, 0].tolist(),
        "alphabet": sorted(sequences.inputs.unique().tolist()),
        "reference": sequences.inputs.tolist(),
        "lengths": _lengths(sequences),
        "classes": latent_classes(sequences),
        "references": list(task.references),
        "best": min(task.references, key=lambda name: _loss(task, sequences, name), default=None),
        "examples": examples,
        "exact": table.packed(packer),
        "dictionaries": packer.dictionaries(subject.model),
    }


def reference_set(task: Task, seed: int) -> Batch:
    """The sequences that means are taken over, and the first of which can be drawn; unseen ones."""
    return task.sample(n_reference(task.n_ctx), split="test", generator=generator(seed, "explorer"))


def _lengths(batch: Batch) -> list[int]:
    """Lengths without padding; empty where nothing is padded."""
    return batch.known_lengths.tolist() if batch.ragged else []


def latent_classes(batch: Batch) -> dict[str, list[int]]:
    """By latent the class of every sequence, for latents with several classes of more than one sequence on average."""
    found = {}
    for name, value in batch.latents.items():
        if value.shape != (len(batch),) or value.is_floating_point() or value.is_complex():
            continue
        if 1 < len(value.unique()) <= len(batch) / 2:
            found[name] = value.long().tolist()
    return found


def _reference_code(name: str, task: Task) -> str:
    """Python code that samples the reference set, from the variables that hold the task and the seed there."""
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


def _parts(removed: xr.Dataset | None) -> tuple[dict[str, str], SkillNeeds | None]:
    """The names of parts, and the accuracy of every skill when each is mean-ablated."""
    if removed is None or "accuracy" not in removed:
        return {}, None
    found = removed.sel(kind="mean")
    components = [str(name) for name in found.component.values]
    roles = dict(zip(components, map(str, found.role.values), strict=True))
    return roles, SkillNeeds(
        skills=[str(name) for name in found.skill.values],
        clean=found.clean_accuracy.values.tolist(),
        without={name: found.accuracy.isel(role=i).values.tolist() for i, name in enumerate(components)},
        n=int(found.attrs["n"]),
    )


def _curves(run: Run) -> SkillCurves | None:
    """Accuracy of every skill on unseen sequences during training, or the loss; None: nothing was logged."""
    if not (run.path / "metrics.jsonl").exists():
        return None
    metrics = run.metrics()
    names = [f"test_{skill}" for skill in skills_in(metrics)] or ["test_loss"]
    every = max(1, metrics.sizes["step"] // MAX_POINTS)
    kept = metrics.isel(step=slice(None, None, every))
    values = {name.removeprefix("test_"): [round(float(v), 4) for v in kept[name].values] for name in names}
    return SkillCurves(steps=kept.step.values.tolist(), values=values, share=names != ["test_loss"])


def _task_fields(task: Task) -> Mapping[str, Any]:
    """The task's configuration, as far as it is numbers, words or lists of them."""
    values = {f.name: getattr(task, f.name) for f in dataclasses.fields(task)}
    plain = (bool, int, float, str, type(None))
    return {name: value for name, value in values.items() if isinstance(value, plain)}


MAX_EXAMPLES = 48
"""Sequences to draw from, each with its minimal pairs."""
MAX_ROWS = 1_000_000
"""Most numbers in all rows of exact predictors; beyond it there are fewer examples."""


@dataclass
class ExactTable:
    """Distributions of exact predictors, each kept once; they are compared in half precision."""

    rows: list[Tensor] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)

    def numbers(self, rows: Tensor) -> list[int]:
        """The place of each row."""
        return [self._number(row) for row in rows.detach().cpu().half()]

    def _number(self, row: Tensor) -> int:
        number = self._numbers.setdefault(row.numpy().tobytes(), len(self.rows))
        if number == len(self.rows):
            self.rows.append(row)
        return number

    def packed(self, packer: Packer) -> int | None:
        """The number of the table, (row, token); None: it is empty."""
        return packer.pack(torch.stack(self.rows)) if self.rows else None


def examples_of(task: Task, sequences: Batch, seed: int, table: ExactTable | None) -> list[PageExample]:
    """The first sequences, each with its group and its minimal pairs, and with exact rows if there is a table."""
    n = min(MAX_EXAMPLES, len(sequences))
    if table is not None:
        per_example = int(sequences.scored.sum(1).max()) * n_outputs(task) * len(task.references)
        n = max(4, min(n, MAX_ROWS // max(1, per_example * (1 + len(task.corruptions)))))
    chosen = sequences.select(slice(0, n))
    groups = task.subgroups(chosen)
    found = []
    for row in range(n):
        one = chosen.select(slice(row, row + 1))
        others = {kind: _corrupted(task, one, kind, seed) for kind in task.corruptions}
        pairs = {
            kind: PageExample(**_sequence(task, other, table)) for kind, other in others.items() if other is not None
        }
        group = next((name for name, rows in groups.items() if bool(rows[row])), "")
        found.append(PageExample(**_sequence(task, one, table), group=group, pairs=pairs))
    return found


def _corrupted(task: Task, one: Batch, kind: str, seed: int) -> Batch | None:
    """A minimal pair of one sequence; None: there is none of this kind."""
    try:
        return task.corrupt(one, kind=kind, generator=generator(seed, "explorer", kind))
    except InputError:
        return None


def _sequence(task: Task, one: Batch, table: ExactTable | None) -> dict[str, Any]:
    """Fields of an example: tokens, scored positions, and there the rows of exact predictors."""
    places = one.scored[0].nonzero()[:, 0]
    found = {"tokens": one.inputs[0].tolist(), "scored": places.tolist()}
    if table is None:
        return found
    rows = {name: table.numbers(task.reference(one, name)[0][places]) for name in task.references}
    return {**found, "places": places.tolist(), "rows": rows}


Sequences = Batch | Tensor
"""A batch, or whole numbers (batch, pos); anything else is refused with its shape and type."""


def model_content(
    model: HookedModel,
    sequences: Sequences,
    packer: Packer,
    *,
    symbols: Sequence[str] | None = None,
    pos: int | Sequence[int] | None = None,
) -> PageRecord:
    """The page's record of a model with sequences, tokens or a batch, all of one length.

    Without `symbols`, tokens have the names of the batch, else their numbers. Without `pos`, predictions are read where
    the batch is scored, for tokens at the last position. Raises InputError where the page cannot run the model, or the
    sequences, names or positions do not fit it.
    """
    configuration = page_configuration(model)
    batch = _batch(model, sequences)
    n_tokens, n_pos = max(model.cfg.d_vocab, model.cfg.d_vocab_out), batch.inputs.shape[1]
    kept = batch.inputs[: n_reference(n_pos)]
    drawn = "sequences.select(slice(0, N))" if isinstance(sequences, Batch) else "batch(sequences[:N])"
    return PageRecord(
        name=None,
        label=_label(model),
        seed=None,
        cfg=configuration,
        steps=[0],
        checkpoints=[packer.checkpoint(model)],
        symbols=_symbols(batch, symbols, n_tokens),
        outputs=_symbols(batch, batch.classes or symbols, model.cfg.d_vocab_out if batch.classes else n_tokens),
        named=bool(batch.classes),
        positions=list(batch.positions[:n_pos]),
        answers=list(range(model.cfg.d_vocab_out)),
        slot=1,
        scored=_scored_positions(batch, pos),
        alphabet=sorted(batch.inputs.unique().tolist()),
        reference=kept.tolist(),
        lengths=_lengths(batch.select(slice(0, len(kept)))),
        classes=latent_classes(batch.select(slice(0, len(kept)))) if isinstance(sequences, Batch) else {},
        examples=[PageExample(tokens=tokens) for tokens in kept[:MAX_EXAMPLES].tolist()],
        dictionaries=packer.dictionaries(model),
        python=PageCode(
            start="# model and sequences: what this page was made of",
            model="model",
            drawn=drawn.replace("N", str(len(kept))),
        ),
    )


def _batch(model: HookedModel, sequences: Sequences) -> Batch:
    """The sequences as a batch that the model can run on."""
    if isinstance(sequences, Batch):
        batch = sequences
    else:
        tokens = torch.as_tensor(sequences)
        if tokens.ndim != 2 or tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
            given = f"shape {tuple(tokens.shape)} of {str(tokens.dtype).removeprefix('torch.')}"
            raise InputError(f"sequences must be a Batch, or numbers of tokens (batch, pos); got {given}")
        batch = Batch(inputs=tokens, targets=tokens, scored=torch.zeros_like(tokens, dtype=torch.bool))
    if batch.inputs.numel() == 0:
        raise InputError("sequences must hold at least one token; got none")
    check_fits(model, batch)
    return batch


def _label(model: HookedModel) -> str:
    name = str(getattr(model.cfg, "model_name", "") or "")
    return "A model" if name in ("", "custom") else name


def _symbols(batch: Batch, symbols: Sequence[str] | None, n_tokens: int) -> list[str]:
    if symbols is not None and len(symbols) != n_tokens:
        raise InputError(f"symbols must name each of the model's {n_tokens} tokens; got {len(symbols)}")
    called = symbols.__getitem__ if symbols is not None else batch.symbol or str
    return [show_whitespace(str(called(token))) for token in range(n_tokens)]


def _scored_positions(batch: Batch, pos: int | Sequence[int] | None) -> list[int]:
    """The positions at which predictions are read, from 0."""
    n_pos = batch.inputs.shape[1]
    if pos is None:
        scored = batch.scored.any(0).nonzero()[:, 0].tolist()
        return scored or [n_pos - 1]
    given = [pos] if isinstance(pos, int) else list(pos)
    for place in given:
        in_range("pos", place, -n_pos, n_pos - 1)
    if not given:
        raise InputError("pos must name at least one position; got none")
    return sorted({place % n_pos for place in given})
