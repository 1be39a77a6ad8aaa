"""`mnemoscope view`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import mnemoscope as ms
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import FigureOptions, SequenceOptions


@dataclass(frozen=True, kw_only=True)
class View(SequenceOptions, FigureOptions):
    """An interactive page with the attention of every head, and the predictions, on one sequence."""

    out: Path = Path("view.html")
    """The page."""


def run(options: View) -> None:
    """Write a page with predictions and attention on one sequence."""
    from mnemoscope.cli.output import console, write_page
    from mnemoscope.report.guesses import show_line_breaks

    opened = ms.open_run(options.run)
    task = opened.spec.task
    entry = ms.report.find_report(task)
    batch = entry.parse(task, options.sequence)
    model = opened.hooked(options.step)
    title, lead = f"{opened.label}, seed {opened.spec.seed}", f"The sequence {show_line_breaks(options.sequence)}"
    page = ms.report.Page(title, lead, fold=True)
    page.section("Predictions")
    predicted = entry.predict(model, task, batch)
    page.figure(entry.prediction_figure(predicted), entry.prediction_caption)
    for table in entry.prediction_tables(predicted):
        page.show(table)
    page.section("Attention")
    example = ms.report.run_attention(opened, batch, step=options.step)
    ms.report.attention_view(page, example, "Select a head to see it in full size; rows are queries, columns keys.")
    write_page(options.out, page.html(), page.figures, options)
    console.print(f"wrote {options.out}", highlight=False)


COMMANDS.add("view", Command(options=View, run=run, section="understand a trained model", out_is_file=True))
