"""The reports on runs of in-context bigrams and of noisy recall: by class of position, and along checkpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files

import xarray as xr

from mnemoscope import REPORTS, HookedModel, Run, Task, generator
from mnemoscope.report import (
    Opening,
    Page,
    Results,
    Table,
    Truncation,
    attention_view,
    findings,
    mean_with_range,
    token_symbols,
    trajectory_curves,
)
from mnemoscope.report import plain_report as plain
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import evaluate_by_class, fixed_triggers, prompts
from mnemoscope.systems.in_context_bigrams.analyses.heads import head_attention, marked_patterns
from mnemoscope.systems.in_context_bigrams.analyses.memories import induction_memories, memory_maps
from mnemoscope.systems.in_context_bigrams.analyses.trajectory import trajectory
from mnemoscope.systems.in_context_bigrams.figures import (
    before_and_after,
    losses,
    mark_triggers,
    memory_bars,
    memory_heatmaps,
    outputs,
    schedules,
    settings,
)
from mnemoscope.systems.in_context_bigrams.known import known_of
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams, NoisyRecall
from mnemoscope.systems.in_context_bigrams.truncation import NOTE, removed_tables, truncate_noisy

N_SEQUENCES = 256
"""Sequences that a run is evaluated on by default."""
IDEAL = "in_context"
"""The exact predictor that reads outputs from the context."""


def examine(run: Run) -> dict[str, xr.Dataset]:
    """Evaluation, attention, memories where there are two layers, and the trajectory, if it was tracked."""
    task, model = run.spec.task, run.hooked()
    batch, names = plain.example(task), token_symbols(task)
    heads = head_attention(model, prompts(task, run.spec.seed))
    return {
        "metrics": run.metrics(),
        **evaluate(run, None),
        "heads": heads,
        "examples": marked_patterns(model, batch, names),
        "untrained": marked_patterns(run.untrained(own=True), batch, names),
        **(_measure_memories(model, task, heads.score, names) if model.cfg.n_layers == 2 else {}),
        **_trajectory_results(run),
    }


def _measure_memories(
    model: HookedModel, task: Task, scores: xr.DataArray, symbols: Sequence[str]
) -> dict[str, xr.Dataset]:
    """The memories of the first layer's head that looks back one token most, and of the second's most inductive.

    Maps carry the names of all tokens as `symbol`.
    """
    previous, induction = (
        (layer, int(scores.sel(measure=name, layer=layer).argmax("head")))
        for layer, name in enumerate(("previous_token", "induction"))
    )
    first = list(fixed_triggers(task))
    order = [*first, *(token for token in range(task.d_vocab) if token not in first)]
    maps = memory_maps(model, previous=previous, induction=induction, tokens=order)
    return {
        "memories": induction_memories(model, previous=previous, induction=induction, tokens=first or None, n_draws=2),
        "maps": maps.assign_coords(symbol=("token_number", list(symbols))),
    }


def _trajectory_results(run: Run) -> dict[str, xr.Dataset]:
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
    _common_sections(page, results)


def noisy_page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page on noisy recall."""
    plain.learned_section(page, results, CLASS)
    page.text(ALONE)
    _common_sections(page, results)


def _common_sections(page: Page, results: Mapping[str, Results]) -> None:
    for section in (trajectory_section, memory_section, attention_section, plain.training_section, view_section):
        section(page, results)


CLASS = "position_class"
ALONE = (
    "Classes are by what stands at a position and what follows it: in context, a trigger that occurred before, "
    "followed by its output; noise, a trigger followed by the noise token. The exact in-context predictor cannot tell "
    "which of the two comes: its best guess is right about as often as the likelier one occurs."
)
TRIGGERS = {"birth-2-layers": "random triggers", "birth-fixed": "frequent triggers", "birth-rare": "rarer triggers"}
SCHEDULES = {"memories": "together", "memories-keys-late": "keys held back", "memories-output-late": "output held back"}
OUTPUTS = {"memories-all": "uniform", "memories-all-bigram": "bigram"}
PANELS = {
    "accuracy": ("accuracy_in_context", "accuracy_second", "accuracy_global"),
    "attention": ("previous_token_score", "induction_score", "attends_after_triggers"),
    "memories": ("recall_copied_token", "recall_remapped_copy", "recall_previous_token_early"),
}
N_POSITIONS = 40
"""Positions of a map of the first memory."""


def opening(result: Results) -> Opening | None:
    """Learning, attention and memories of a tracked configuration of two layers, and attention before and after."""
    if "trajectory" not in result or "memories" not in result:
        return None
    followed = result["trajectory"]
    seed = int(result["examples"].seed[0])
    shown = {title: result[name].isel(seed=0, example=0) for title, name in _CHECKPOINTS.items()}
    figures = [
        ("Along training: one line per seed.", trajectory_curves(followed, PANELS)),
        (f"The start of one unseen sequence, seed {seed}.", before_and_after(shown)),
        ("Memories at the end: bars are means, dots seeds; dotted lines: chance.", memory_bars(result["memories"])),
    ]
    sentences = [findings.describe_rise(followed[name], words) for name, words in _RISES.items()]
    return Opening(finding=" ".join(sentences), figures=figures)


_RISES = {
    "accuracy_in_context": "accuracy at triggers seen before",
    "induction_score": "attention to the tokens after earlier occurrences (induction)",
}


def comparison_section(page: Page, results: Mapping[str, Results]) -> None:
    """Configurations beside each other along training: those of one recipe and with the same changes."""
    groups: dict[str, dict[str, xr.Dataset]] = {}
    for label, result in results.items():
        preset = result["metrics"].attrs["preset"].partition("+")[0]
        if "trajectory" in result:
            groups.setdefault(label.removeprefix(preset).strip("+-"), {})[preset] = result["trajectory"]
    if not groups:
        return
    page.section("What decides")
    page.text(
        "Measures of every checkpoint: lines are means over seeds, bands their range. What goes together with what."
    )
    for group, tracked in groups.items():
        _comparison_figures(page, group, tracked)


def _comparison_figures(page: Page, group: str, tracked: Mapping[str, xr.Dataset]) -> None:
    by_triggers, by_schedule, by_output = (
        {title: tracked[preset] for preset, title in titles.items() if preset in tracked}
        for titles in (TRIGGERS, SCHEDULES, OUTPUTS)
    )
    if by_triggers:
        page.heading(f"Which tokens are triggers ({group})")
        page.figure(losses(by_triggers), "Loss where the output can be read from the context, and at all other tokens.")
    if by_schedule:
        page.heading(f"Matrices held back in turn ({group})")
        freed = {title: found.attrs["freed"] for title, found in by_schedule.items() if found.attrs["freed"]}
        page.figure(schedules(by_schedule, freed=freed), "Recall of each memory, and in-context accuracy.")
    if by_output:
        page.heading(f"Where outputs come from ({group})")
        page.figure(outputs(by_output), "Outputs uniform over the tokens, or drawn from the bigrams.")
    if deep := {preset: found for preset, found in tracked.items() if found.recall_copied_token.notnull().any()}:
        page.heading(f"Memories at the end ({group})")
        page.figure(settings(deep), "Mean over seeds at the last step, and range.")


def trajectory_section(page: Page, results: Mapping[str, Results]) -> None:
    """The measures of every checkpoint, by configuration."""
    page.section("Along training")
    page.text("Measures of `mnemoscope evaluate --checkpoints`; no line where a layer is missing.")
    for label, result in results.items():
        page.heading(label)
        if "trajectory" in result:
            page.figure(trajectory_curves(result["trajectory"], PANELS), "One line per seed.")
        else:
            page.text("Not tracked yet.")


def memory_section(page: Page, results: Mapping[str, Results]) -> None:
    """Recall of the memories at the end of training, and the scores behind it."""
    deep = {label: result for label, result in results.items() if "memories" in result}
    if not deep:
        return
    page.section("Memories")
    page.text(
        "Whether the weights hold what an induction head would need, read one matrix at a time; a memory that is "
        "stored has a diagonal. Such a memory may be unused, and others may do its work."
    )
    for label, result in deep.items():
        page.heading(label)
        page.figure(memory_bars(result["memories"]), "Bars are means, dots seeds; dotted lines: chance.")
        first = result["maps"].isel(seed=0)
        page.figure(memory_heatmaps(first, n_pos=N_POSITIONS), f"Seed {int(first.seed)}; fixed triggers come first.")


def attention_section(page: Page, results: Mapping[str, Results]) -> None:
    """The attention of heads, in numbers and on one sequence."""
    page.section("Where heads look")
    page.text(
        "Share of attention of every head: to the previous token; from triggers that have occurred before to the "
        "tokens after their earlier occurrences (induction); from positions with an earlier trigger to the tokens "
        "after any. Triggers are orange, what follows them is blue. Patterns are correlational."
    )
    for label, result in results.items():
        page.heading(label)
        table = heads_table(result)
        page.table(table.header, table.rows, table.title)
        seed = int(result["examples"].seed[0])
        shown = {title: result[name].isel(seed=0, example=0) for title, name in _CHECKPOINTS.items()}
        page.figure(before_and_after(shown), f"The start of one unseen sequence, seed {seed}.")


_CHECKPOINTS = {"untrained": "untrained", "trained": "examples"}


def heads_table(result: Results) -> Table:
    """One row per head."""
    score = result["heads"].score
    names = [str(name) for name in score.measure.values]
    rows = [
        [
            f"L{layer}H{head}",
            *(mean_with_range(score.sel(measure=name, layer=layer, head=head), ".3f") for name in names),
        ]
        for layer in score.layer.values
        for head in score["head"].values
    ]
    header = ("head", *(name.replace("_", " ") for name in names))
    return Table(name="heads", title="mean [range] over seeds", header=header, rows=rows)


def view_section(page: Page, results: Mapping[str, Results]) -> None:
    """The attention of the first seed on one sequence, marked."""
    page.section("Single sequences")
    page.text("Select a head to see it in full size. ▸ stands before a trigger, ◂ behind the token after one.")
    for label, result in results.items():
        first = result["examples"].isel(seed=0)
        page.heading(f"{label}, seed {int(first.seed)}")
        attention_view(page, mark_triggers(first.isel(example=0)), "The start of an unseen sequence")


def ideal_parts() -> str:
    """The script with which the live explorer computes the ideal parts."""
    return (files("mnemoscope.systems.in_context_bigrams") / "ideal_parts.js").read_text(encoding="utf-8")


_BIRTH = replace(
    plain.PLAIN,
    title="In-context bigrams: the birth of an induction head",
    about="A sequence follows the bigrams of a text, but for its trigger tokens: each is always followed by the same "
    "output, which is another one in every sequence. From its second occurrence on, the output can be read from "
    "the context.",
    analyse=examine,
    page=birth_page,
    opening=opening,
    tables=partial(plain.tables, dim=CLASS),
    evaluate=evaluate,
    evaluation_tables=partial(plain.evaluation_tables, dim=CLASS),
    predict=partial(plain.predict, reference=IDEAL, knows=known_of),
    trajectory=trajectory,
)
REPORTS.add(InContextBigrams.name, replace(_BIRTH, ideal_parts=ideal_parts))
_NOISY = Truncation(measure=truncate_noisy, tables=removed_tables, note=NOTE)
REPORTS.add(
    NoisyRecall.name,
    replace(
        _BIRTH,
        title="Noisy recall",
        about="A sequence follows the bigrams of a text, but for its trigger tokens: each is followed by an output of "
        "the sequence's own, or by a noise token in its place. The output can be read from the context.",
        page=noisy_page,
        truncation=_NOISY,
    ),
)
