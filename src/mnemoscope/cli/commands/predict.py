"""`mnemoscope predict`."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table as RichTable
from rich.text import Text

import mnemoscope as ms
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import OfSequence


@dataclass(frozen=True, kw_only=True)
class Predict(OfSequence):
    """What a model says about one sequence, token by token, beside the exact predictor."""


def run(options: Predict) -> None:
    """Print what the model says about the sequence, beside the exact predictor where the task has one."""
    from mnemoscope.cli.output import console
    from mnemoscope.report.guesses import on_one_line

    opened = ms.open_run(options.run)
    task = opened.spec.task
    entry = ms.report.report_of(task)
    batch = entry.parse(task, options.sequence)
    result = entry.predict(opened.hooked(options.step), task, batch)
    console.print(
        Text.assemble((f"{opened.label}, seed {opened.spec.seed}", "bold"), f": {on_one_line(options.sequence)}")
    )
    for table in entry.prediction_tables(result):
        console.print(_plain(table))


def _plain(table: ms.report.Table) -> RichTable:
    """A table without rules; bars are set apart by colour."""
    shown = RichTable(title=Text(table.title), title_justify="left", box=None, padding=(0, 1))
    for i, name in enumerate(table.header):
        shown.add_column(name, justify="left" if i < table.n_text else "right")
    for row in table.rows:
        cells = [Text(cell, style="blue" if "█" in cell or "·" in cell else "") for cell in row]
        shown.add_row(*cells)
    return shown


COMMANDS.add("predict", Command(options=Predict, run=run, section="train and look"))
