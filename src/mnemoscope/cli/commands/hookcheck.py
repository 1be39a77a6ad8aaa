"""`mnemoscope hookcheck`: a model checked against the laws of hooked models."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import CommandOptions
from mnemoscope.cli.refusals import check_out
from mnemoscope.core.errors import InputError, in_range


@dataclass(frozen=True, kw_only=True)
class Hookcheck(CommandOptions):
    """Check a model against laws that every hooked model keeps, and say which analyses may be believed.

    Each law holds, is broken by some amount, is refused by the model, or does not apply. It ends with rc 1 where one is
    broken. `ms.testing.LAWS` holds the laws.
    """

    model: Positional[str]
    """A run directory or a word such as `zoo:v3-quick/seed-16`; a language model as `ms.language_model` takes it; or a
    function that gives a model: FILE.py:FUNCTION, MODULE:FUNCTION, or the name of one in a file of --import."""
    laws: tuple[str, ...] = ()
    """Names of laws or of their families; none: all."""
    seed: int = 0
    """Draws prompts and written values."""
    n_prompts: int = 2
    """Prompts, and as many others whose activations are written."""
    n_pos: int = 6
    """Tokens per prompt."""
    max_seconds: float | None = None
    """Laws that are left after so much time are reported as refused; none: no limit."""
    device: str = "cpu"
    """Device of a language model."""
    dtype: str = "float32"
    """Precision of the weights of a language model."""
    json: Path | None = None
    """Write the report to this file."""
    junit: Path | None = None
    """Write the report to this file as JUnit XML, one test a law."""


def run(options: Hookcheck) -> None:
    """Write and print the report; exit with 1 where a law is broken."""
    for option in ("json", "junit"):
        if (out := getattr(options, option)) is not None:
            check_out(out, is_file=True, option=f"--{option}")
    for option in ("n_prompts", "n_pos"):
        in_range(f"--{option.replace('_', '-')}", getattr(options, option), 1, float("inf"))
    if options.max_seconds is not None and not options.max_seconds > 0:
        raise InputError(f"--max-seconds must be above 0; got {options.max_seconds}")
    from mnemoscope.cli.output import console, show
    from mnemoscope.hookcheck import reports
    from mnemoscope.hookcheck.check import check_model, select_laws
    from mnemoscope.hookcheck.named import open_model
    from mnemoscope.models.files import write_atomically

    select_laws(options.laws or None)
    model = open_model(options.model, dtype=options.dtype, device=options.device)
    with console.status("laws are checked"):
        report = check_model(
            model,
            laws=options.laws or None,
            seed=options.seed,
            n_prompts=options.n_prompts,
            n_pos=options.n_pos,
            max_seconds=options.max_seconds,
            name=options.model,
        )
    for out, text in ((options.json, reports.to_json), (options.junit, reports.to_junit)):
        if out is not None:
            write_atomically(out, text(report).encode())
    show(f"{report.model}: laws of hooked models", reports.LAW_COLUMNS, reports.law_rows(report), n_text=5)
    show("analyses", reports.ANALYSIS_COLUMNS, reports.analysis_rows(report), n_text=3)
    for line in reports.breach_lines(report):
        console.print(line, highlight=False, markup=False)
    console.print(report.counts, highlight=False)
    if not report.holds:
        sys.exit(1)


COMMANDS.add("hookcheck", Command(options=Hookcheck, run=run, section="study a model of your own or a language model"))
