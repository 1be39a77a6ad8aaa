"""`mnemoscope explore`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional, UseAppendAction

import mnemoscope as ms
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import CommandOptions, RunPaths


@dataclass(frozen=True, kw_only=True)
class Explore(CommandOptions):
    """A page in which the model runs: change the sequence, switch parts off, patch, walk through training."""

    runs: Positional[RunPaths]
    """Run directories, directories that hold some, or words such as `zoo:<configuration>/seed-<seed>`."""
    checkpoints: int | None = None
    """At most so many of every run, evenly apart in their order, the last among them; none: all."""
    dictionary: UseAppendAction[tuple[Path, ...]] = ()
    """Dictionary whose features stand beside the neurons, a file or directory; one name for all runs, such as
    `dictionaries/dictionary-00.safetensors` after `dictionary train`. May be repeated, one a layer."""
    state: str = ""
    """What stands after the # in the address of such a page: this one opens in that state."""
    out: Path = Path("explorer.html")
    """The page."""


def run(options: Explore) -> None:
    """Write the page of some runs."""
    runs = [found for path in options.runs for found in ms.find_runs([path])]
    if options.dictionary:
        runs = [ms.models.run_with_dictionaries(run, options.dictionary) for run in runs]
    page = ms.explore(runs, checkpoints=options.checkpoints, state=options.state)
    write_explorer(options.out, page, len(runs))


def write_explorer(path: Path, page: ms.report.Page, n_models: int) -> None:
    """Write the page and say where."""
    from mnemoscope.cli.output import console
    from mnemoscope.models.files import write_atomically
    from mnemoscope.report.tables import pluralise

    content = page.html().encode()
    write_atomically(path, content)
    size = f"{len(content) / 1e6:.1f} MB"
    console.print(f"wrote {path}: {pluralise(n_models, 'model')}, {size}", highlight=False)


COMMANDS.add("explore", Command(options=Explore, run=run, section="understand a trained model", out_is_file=True))
