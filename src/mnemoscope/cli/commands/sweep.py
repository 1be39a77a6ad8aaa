"""`mnemoscope sweep`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from mnemoscope.cli.analysis import xr
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import Jobs, WritesResults
from mnemoscope.core.errors import InputError

if TYPE_CHECKING:
    from mnemoscope.run.configurations import Sweep


KEYS = "the keys preset, seeds and axes"


@dataclass(frozen=True, kw_only=True)
class SweepOptions(Jobs, WritesResults):
    """Train a preset over a grid of configurations, or find the largest task that each of them learns."""

    file: Positional[Path]
    """YAML file with preset, seeds and axes, and recipe, changes, largest and best_of if wanted."""
    out: Path = Path("sweeps")
    """Runs go to OUT/runs, arrays, a table, a page with figures and index.html to OUT."""


def run(options: SweepOptions) -> None:
    """Train or search what the file declares; print the table, write arrays and the page."""
    from mnemoscope.cli.commands.index import refresh
    from mnemoscope.cli.output import console, show, write_arrays, write_page, write_table
    from mnemoscope.report.sweeps import sweep_page, sweep_table

    sweep = read_sweep(options.file)
    found = _searched(sweep, options) if sweep.largest else _trained(sweep, options)
    logged, table = sweep_table(found.drop_vars(found.attrs.get("numbers", ()))), sweep_table(found)
    show(logged.title, logged.header, logged.rows, n_text=logged.n_text)
    write_arrays(options.out, {"sweep": found})
    write_table(options.out, table, latex=options.latex)
    page = sweep_page(found)
    write_page(options.out / "sweep.html", page.html(), page.figures, options)
    console.print(f"wrote sweep.nc, sweep.csv and sweep.html in {options.out}", highlight=False)
    refresh(options.out)


def _trained(sweep: Sweep, options: SweepOptions) -> xr.Dataset:
    from mnemoscope.cli.commands.train import train_with_progress
    from mnemoscope.cli.output import console
    from mnemoscope.cli.progress import counted_down
    from mnemoscope.report.task_report import report_of
    from mnemoscope.run.configurations import over_sweep, swept

    runs = train_with_progress(sweep.specs(), options.out / "runs", options.jobs)
    logged, numbers = swept(sweep, runs), report_of(runs[0].spec.task).numbers
    if numbers is None:
        return logged
    with counted_down(1, "runs measured", console):
        measured = over_sweep(sweep, runs, numbers, jobs=options.jobs)
    return logged.merge(measured).assign_attrs(numbers=list(map(str, measured.data_vars)))


def _searched(sweep: Sweep, options: SweepOptions) -> xr.Dataset:
    from mnemoscope.cli.output import console
    from mnemoscope.cli.progress import counted_down
    from mnemoscope.run.configurations import search_sweep

    with counted_down(1, "searches", console):
        return search_sweep(sweep, options.out / "runs", jobs=options.jobs)


def read_sweep(file: Path) -> Sweep:
    """The sweep that a file declares; its seeds are a list, or words such as 0-15."""
    from mnemoscope.cli.parse import parse_seeds, read_yaml
    from mnemoscope.core.specification import structure
    from mnemoscope.run.configurations import Sweep

    content: dict[str, Any] = dict(read_yaml(file, str(file), KEYS))
    if missing := [key for key in ("preset", "seeds", "axes") if key not in content]:
        raise InputError(f"{file} must hold {KEYS}; {missing[0]} is missing")
    if isinstance(seeds := content.get("seeds"), str | int):
        content["seeds"] = parse_seeds(str(seeds))
    return structure(Sweep, content, "sweep")


COMMANDS.add("sweep", Command(options=SweepOptions, run=run, section="train and look"))
