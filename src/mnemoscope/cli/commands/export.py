"""`mnemoscope export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

import mnemoscope as ms
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import Options, RunPath


@dataclass(frozen=True, kw_only=True)
class Export(Options):
    """Write a run for other libraries: a plain HookedTransformer, a GPT-2 of transformers, a model card."""

    run: Positional[RunPath]
    """Run directory, or a word such as `zoo:<configuration>/seed-<seed>`."""
    step: int | None = None
    """Training step of the checkpoint; none: the last."""
    out: Path = Path("exported")
    """Directory to write to; what an earlier export left there is replaced."""


def run(options: Export) -> None:
    """Export, and say what other libraries cannot load."""
    from mnemoscope.cli.output import console
    from mnemoscope.models.export import export_run

    found = ms.open_run(options.run)
    for sentence in export_run(found, options.out, step=options.step):
        console.print(sentence, highlight=False)
    console.print(f"wrote {options.out}, with a model card in README.md", highlight=False)


COMMANDS.add("export", Command(options=Export, run=run, section="train and look"))
