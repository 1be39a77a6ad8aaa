"""The reports on runs of in-context bigrams and of noisy recall: by class of position, and along checkpoints."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import xarray as xr

from mnemoscope import REPORTS, HookedModel, Run, Task, generator
from mnemoscope.report import Page, Results, Truncation, symbols_of
from mnemoscope.report import plain_report as plain
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import evaluate_by_class
from mnemoscope.systems.in_context_bigrams.analyses.heads import head_attention, marked_patterns
from mnemoscope.systems.in_context_bigrams.analyses.memories import induction_memories, memory_maps
from mnemoscope.systems.in_context_bigrams.analyses.prompts import fixed_triggers, prompts
from mnemoscope.systems.in_context_bigrams.analyses.trajectory import trajectory
from mnemoscope.systems.in_context_bigrams.known import known_of
from mnemoscope.systems.in_context_bigrams.report_sections import (
    ALONE,
    CLASS,
    attention_section,
    comparison_section,
    memory_section,
    opening,
    trajectory_section,
    view_section,
)
from mnemoscope.systems.in_context_bigrams.tasks.in_context_bigrams import InContextBigrams
from mnemoscope.systems.in_context_bigrams.tasks.noisy_recall import NoisyRecall
from mnemoscope.systems.in_context_bigrams.truncation import NOTE, removed_tables, truncate_noisy

N_SEQUENCES = 256
"""Sequences that a run is evaluated on by default."""
IDEAL = "in_context"
"""The exact predictor that reads outputs from the context."""


def examine(run: Run) -> dict[str, xr.Dataset]:
    """Evaluation, attention, memories where there are two layers, and the trajectory, if it was tracked."""
    task, model = run.spec.task, run.hooked()
    batch, names = plain.example(task), symbols_of(task)
    heads = head_attention(model, prompts(task, run.spec.seed))
    return {
        "metrics": run.metrics(),
        **evaluate(run, None),
        "heads": heads,
        "examples": marked_patterns(model, batch, names),
        "untrained": marked_patterns(run.untrained(own=True), batch, names),
        **(_memories(model, task, heads.score) if model.cfg.n_layers == 2 else {}),
        **_tracked(run),
    }


def _memories(model: HookedModel, task: Task, scores: xr.DataArray) -> dict[str, xr.Dataset]:
    """The memories of the first layer's head that looks back one token most, and of the second's most inductive."""
    previous, induction = (
        (layer, int(scores.sel(measure=name, layer=layer).argmax("head")))
        for layer, name in enumerate(("previous_token", "induction"))
    )
    first = list(fixed_triggers(task))
    order = [*first, *(token for token in range(task.d_vocab) if token not in first)]
    return {
        "memories": induction_memories(model, previous=previous, induction=induction, tokens=first or None, n_draws=2),
        "maps": memory_maps(model, previous=previous, induction=induction, tokens=order),
    }


def _tracked(run: Run) -> dict[str, xr.Dataset]:
    """The trajectory, and from which step on no learned matrix is frozen."""
    tracked = run.trajectory()
    if tracked is None:
        return {}
    freed = max((freeze.stop for freeze in run.spec.recipe.frozen if freeze.stop is not None), default=0)
    return {"trajectory": tracked.assign_attrs(freed=freed)}


def evaluate(run: Run, n_samples: int | None) -> dict[str, xr.Dataset]:
    """Accuracy and loss by class of position, on sampled sequences; on both splits where they differ."""
    task, model, seed, n = run.spec.task, run.hooked(), run.spec.seed, n_samples or N_SEQUENCES
    splits = ("train", "test") if getattr(task, "held_out", 0) else ("test",)
    batches = [task.sample(n, split=split, generator=generator(seed, "evaluation", split)) for split in splits]
    results = [evaluate_by_class(model, batch, task=task) for batch in batches]
    found = xr.concat(results, xr.DataArray(list(splits), dims="split", name="split"))
    return {"evaluation": found.assign_attrs(sequences=f"{n} samples")}


def birth_page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page on in-context bigrams."""
    plain.learned_section(page, results, CLASS)
    comparison_section(page, results)
    _common(page, results)


def noisy_page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page on noisy recall."""
    plain.learned_section(page, results, CLASS)
    page.text(ALONE)
    _common(page, results)


def _common(page: Page, results: Mapping[str, Results]) -> None:
    for section in (trajectory_section, memory_section, attention_section, plain.training_section, view_section):
        section(page, results)


_BIRTH = replace(
    plain.PLAIN,
    title="In-context bigrams: the birth of an induction head",
    analyse=examine,
    page=birth_page,
    opening=opening,
    tables=partial(plain.tables, dim=CLASS),
    evaluate=evaluate,
    evaluation_tables=partial(plain.evaluation_tables, dim=CLASS),
    predict=partial(plain.predict, reference=IDEAL, knows=known_of),
    trajectory=trajectory,
)
REPORTS.add(InContextBigrams.name, _BIRTH)
_NOISY = Truncation(measure=truncate_noisy, tables=removed_tables, note=NOTE)
REPORTS.add(NoisyRecall.name, replace(_BIRTH, title="Noisy recall", page=noisy_page, truncation=_NOISY))
