"""`mnemoscope predict`."""

import xarray as xr
from rich.table import Table

from mnemoscope.analyses.examine import lookup_task
from mnemoscope.analyses.prediction import predict
from mnemoscope.cli.options import Predict
from mnemoscope.cli.output import console
from mnemoscope.models.run import open_run

_WIDTH = 24


def run(options: Predict) -> None:
    """Print the distribution at every slot as bars beside the Bayes reference."""
    opened = open_run(options.run)
    task = lookup_task(opened.spec.task)
    batch = task.parse(options.sequence)
    result = predict(opened.model(options.step), task, batch)
    console.print(f"[bold]{opened.label}, seed {opened.spec.seed}[/]: {options.sequence}", highlight=False)
    for slot in result.slot.values:
        console.print(_slot(result.sel(slot=slot)))


def _slot(at: xr.Dataset) -> Table:
    used = [int(v) for v in at.value.values if bool(at.used.sel(value=v))]
    title = f"slot {int(at.slot)}: x = {int(at.x)}, used y: {used or 'none'}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1))
    for name in ("y", "model", "", "Bayes", "", ""):
        table.add_column(name, justify="right" if name in ("model", "Bayes") else "left")
    for value in at.value.values:
        cell = at.sel(value=value)
        marks = ["✓ target"] if int(value) == int(at.target) else []
        marks += ["✕ used"] if bool(cell.used) else []
        model, bayes = float(cell.probability), float(cell.bayes)
        table.add_row(str(value), f"{model:.4f}", _bar(model, "blue"), f"{bayes:.4f}", _bar(bayes), " ".join(marks))
    return table


def _bar(share: float, colour: str = "white") -> str:
    filled = round(share * _WIDTH)
    return f"[{colour}]{'█' * filled}[/][dim]{'·' * (_WIDTH - filled)}[/]"
