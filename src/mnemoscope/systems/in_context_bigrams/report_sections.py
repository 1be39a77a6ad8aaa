"""Sections of the reports on in-context bigrams and noisy recall."""

from collections.abc import Mapping

import xarray as xr

from mnemoscope.report import Opening, Page, Results, Table, attention_view, findings, spread, trajectory_curves
from mnemoscope.systems.in_context_bigrams.figures import (
    before_and_after,
    losses,
    marked,
    memory_bars,
    memory_heatmaps,
    outputs,
    schedules,
    settings,
)

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
    sentences = [findings.rises(followed[name], words) for name, words in _RISES.items()]
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
        _compared(page, group, tracked)


def _compared(page: Page, group: str, tracked: Mapping[str, xr.Dataset]) -> None:
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
    page.text("Measures of every checkpoint, as `mnemoscope track` takes them; no line where a layer is missing.")
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
        [f"L{layer}H{head}", *(spread(score.sel(measure=name, layer=layer, head=head), ".3f") for name in names)]
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
        attention_view(page, marked(first.isel(example=0)), "The start of an unseen sequence")
