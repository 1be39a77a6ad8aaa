"""`mnemoscope evaluate`, `predict` and `export`: the answers of trained runs, their learning, and copies for others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.table import Table as RichTable
from rich.text import Text
from tyro.conf import Positional

import mnemoscope as ms
from mnemoscope.cli.analysis import analyse_configurations, analyse_runs, xr
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import CommandOptions, FigureOptions, RunOptions, RunPath, SequenceOptions, TableOptions
from mnemoscope.core.errors import InputError, in_range


@dataclass(frozen=True, kw_only=True)
class Evaluate(RunOptions, TableOptions):
    """Accuracy and loss beside the exact predictors, by what the task tells apart, and beside published figures."""

    checkpoints: bool = False
    """Measure every checkpoint of finished runs instead, keep that in their directories, and print the onsets."""
    n_samples: int | None = None
    """Sequences to draw; none: enumerate all of them, exactly, or draw a few hundred where there are too many."""
    out: Path | None = None
    """Directory for the arrays (netCDF) and tables (CSV)."""


def evaluate(options: Evaluate) -> None:
    """Print, for every configuration, the evaluation as its task's entry shows it; write it too if asked to."""
    from mnemoscope.cli.output import show, write_arrays, write_table
    from mnemoscope.report.tables import pluralise

    if options.checkpoints:
        if options.n_samples is not None or options.out is not None:
            raise InputError("--checkpoints keeps its results with the runs; leave out --n-samples and --out")
        track(ms.find_runs(options.runs), options.jobs)
        return
    if options.n_samples is not None:
        in_range("--n-samples", options.n_samples, 1, float("inf"))
    if options.latex and options.out is None:
        raise InputError("--latex writes files; name a directory with --out")
    analyse = partial(evaluate_run, n_samples=options.n_samples)
    for label, runs, results in analyse_configurations(options.runs, analyse, jobs=options.jobs):
        if options.out:
            write_arrays(options.out / label, results)
        tables = ms.report.find_report(runs[0].spec.task).evaluation_tables(results)
        if options.out:
            for table in tables:
                write_table(options.out / label, table, latex=options.latex)
        for table in tables:
            show(
                f"{label}, {pluralise(len(runs), 'seed')}: {table.title}", table.header, table.rows, n_text=table.n_text
            )


def evaluate_run(run: ms.Run, n_samples: int | None) -> dict[str, xr.Dataset]:
    """Everything that one run is evaluated on."""
    return ms.report.find_report(run.spec.task).evaluate(run, n_samples)


@dataclass(frozen=True, kw_only=True)
class Predict(SequenceOptions, FigureOptions):
    """Show the predictions of a model for one sequence, token by token, beside the exact predictor."""

    out: Path | None = None
    """Write a page too, with the predictions and an interactive view of the attention of every head."""


def predict(options: Predict) -> None:
    """Print what the model says about the sequence, beside the exact predictor where the task has one."""
    if options.figures and options.out is None:
        raise InputError("--figures takes them from a page; name one with --out")
    from mnemoscope.cli.output import console, write_page
    from mnemoscope.report.guesses import show_line_breaks

    opened = ms.open_run(options.run)
    task = opened.spec.task
    entry = ms.report.find_report(task)
    batch = entry.parse(task, options.sequence)
    predicted = entry.predict(opened.hooked(options.step), task, batch)
    title, sequence = f"{opened.label}, seed {opened.spec.seed}", show_line_breaks(options.sequence)
    tables = entry.prediction_tables(predicted)
    if options.out is not None:
        page = ms.report.Page(title, f"The sequence {sequence}", fold=True)
        page.section("Predictions")
        page.figure(entry.prediction_figure(predicted), entry.prediction_caption)
        for table in tables:
            page.show(table)
        page.section("Attention")
        example = ms.report.run_attention(opened, batch, step=options.step)
        ms.report.attention_view(page, example, "Select a head to see it in full size; rows are queries, columns keys.")
        write_page(options.out, page.html(), page.figures, options)
    console.print(Text.assemble((title, "bold"), f": {sequence}"))
    for table in tables:
        console.print(_plain_table(table))
    if options.out is not None:
        console.print(f"wrote {options.out}", highlight=False)


def _plain_table(table: ms.report.Table) -> RichTable:
    """A table without rules; bars are set apart by colour."""
    shown = RichTable(title=Text(table.title), title_justify="left", box=None, padding=(0, 1))
    for i, name in enumerate(table.header):
        shown.add_column(name, justify="left" if i < table.n_text else "right")
    for row in table.rows:
        cells = [Text(cell, style="blue" if "█" in cell or "·" in cell else "") for cell in row]
        shown.add_row(*cells)
    return shown


def track(runs: Sequence[ms.Run], jobs: int) -> None:
    """Measure checkpoints of the finished runs that lack it, and keep that with each run; print onsets."""
    from mnemoscope.cli.output import console
    from mnemoscope.report.tables import pluralise

    finished = [run for run in runs if run.finished]
    if len(finished) < len(runs):
        left = pluralise(len(runs) - len(finished), "run")
        console.print(f"{left} not finished and left out", highlight=False)
    if not finished:
        raise InputError("none of the runs is finished; `mnemoscope train` continues them")
    track_all(finished, jobs)


def track_all(runs: Sequence[ms.Run], jobs: int) -> None:
    """Measure checkpoints of runs that lack it and keep that with each run; print onsets by configuration."""
    from mnemoscope.cli.output import console, show
    from mnemoscope.report.curves import onset_table
    from mnemoscope.report.tables import pluralise

    missing = [run for run in runs if not _is_complete(run)]
    analyse_runs(missing, track_run, jobs, "runs followed")
    complete = len(runs) - len(missing)
    followed = f"followed {pluralise(len(missing), 'run')}"
    console.print(f"{followed}; {complete} {'was' if complete == 1 else 'were'} complete", highlight=False)
    for label, members in ms.models.by_label(runs).items():
        trajectories = [_read_trajectory(run) for run in members]
        for steps in dict.fromkeys(tuple(each.step.values.tolist()) for each in trajectories):
            group = [i for i, each in enumerate(trajectories) if tuple(each.step.values.tolist()) == steps]
            followed = ms.analyses.along_seed([members[i] for i in group], [trajectories[i] for i in group])
            table = onset_table(followed)
            checkpoints = f"{pluralise(len(group), 'seed')}, {pluralise(len(steps), 'checkpoint')}"
            show(f"{label}, {checkpoints}: {table.title}", table.header, table.rows)


def track_run(run: ms.Run) -> None:
    """Measure every checkpoint of a run, and keep that in its directory."""
    from mnemoscope.analyses.comparison import skill_trajectory

    measure = ms.report.find_report(run.spec.task).trajectory or skill_trajectory
    run.write_trajectory(ms.analyses.over_steps(run, partial(measure, task=run.spec.task, seed=run.spec.seed)))


def _is_complete(run: ms.Run) -> bool:
    """True if every checkpoint is measured; of the zoo's runs steps are measured whose checkpoints are not shipped."""
    followed = run.trajectory()
    return followed is not None and set(run.steps) <= set(followed.step.values.tolist())


def _read_trajectory(run: ms.Run) -> xr.Dataset:
    followed = run.trajectory()
    assert followed is not None
    return followed


@dataclass(frozen=True, kw_only=True)
class Export(CommandOptions):
    """Write a run for other libraries: a plain HookedTransformer, a GPT-2 of transformers, a model card."""

    run: Positional[RunPath]
    """Run directory, or a word such as `zoo:<configuration>/seed-<seed>`."""
    step: int | None = None
    """Training step of the checkpoint; none: the last."""
    out: Path = Path("exported")
    """Directory to write to; what an earlier export left there is replaced."""


def export(options: Export) -> None:
    """Export, and say what other libraries cannot load."""
    from mnemoscope.cli.output import console
    from mnemoscope.models.export import export_run

    found = ms.open_run(options.run)
    for sentence in export_run(found, options.out, step=options.step):
        console.print(sentence, highlight=False)
    console.print(f"wrote {options.out}, with a model card in README.md", highlight=False)


_TRACK = {"checkpoints": True}
COMMANDS.add(
    "evaluate",
    Command(
        options=Evaluate,
        run=evaluate,
        section="understand a trained model",
        earlier={"track": _TRACK, "follow": _TRACK},
    ),
)
COMMANDS.add(
    "predict",
    Command(
        options=Predict,
        run=predict,
        section="understand a trained model",
        out_is_file=True,
        earlier={"view": {"out": Path("view.html")}},
    ),
)
COMMANDS.add("export", Command(options=Export, run=export, section="study a model of your own or a language model"))
