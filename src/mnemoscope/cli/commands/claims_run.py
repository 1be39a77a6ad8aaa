"""`mnemoscope claims run`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

import mnemoscope as ms
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import Jobs
from mnemoscope.core.errors import InputError, one_of


@dataclass(frozen=True, kw_only=True)
class ClaimsRun(Jobs):
    """Put claims on trial over trained models: a verdict each, with controls, rivals and sensitivity; resumes."""

    what: Positional[tuple[str, ...]] = ("tiny-recall",)
    """Systems or claims, such as tiny-recall or T14."""
    runs: tuple[Path, ...] = ()
    """Run directories, directories that hold some, or words such as `zoo:v3-published`."""
    zoo: bool = False
    """Take the trained runs that come with the package too."""
    recipe: str | None = None
    """Ask of models of this recipe, quick or published, in place of the claims' own."""
    sensitivity: bool = True
    """Ask again with one factor changed at a time."""
    emergence: bool = True
    """Follow the effects of the first seed that has checkpoints over its training."""
    jobs: int = 0
    """Worker processes, of one thread each; 0: one per core."""
    out: Path = Path("verdicts")
    """Directory for verdicts.json, report.html, the evidence, and what was measured so far."""


RECIPES = ("quick", "published")


def run(options: ClaimsRun) -> None:
    """Measure, judge, print and write."""
    from mnemoscope.cli.claims import answered_by_zoo, claims_called, try_claims
    from mnemoscope.cli.output import console
    from mnemoscope.sweeps.trials import asked_of

    claims = claims_called(options.what)
    if options.recipe is not None:
        one_of("--recipe", options.recipe, RECIPES)
        claims = [claim for claim in claims if asked_of(claim, options.recipe)]
        if not claims:
            raise InputError(
                f"{' '.join(options.what)} says nothing of the {options.recipe} recipe; leave out --recipe"
            )
    paths = [*options.runs, *([Path("zoo")] if options.zoo else [])]
    if not paths:
        raise InputError("claims run needs models: --zoo takes those that came with the package, --runs DIR your own")
    runs = ms.find_runs(paths, without_checkpoint=True)
    if not options.runs:
        claims, sentences = answered_by_zoo(claims, runs)
        if not claims:
            raise InputError("; ".join(sentences))
        for sentence in sentences:
            console.print(sentence, highlight=False)
    try_claims(
        claims,
        runs,
        options.out,
        title="verdicts",
        recipe=options.recipe,
        sensitivity=options.sensitivity,
        emergence=options.emergence,
        jobs=options.jobs,
    )


COMMANDS.add("claims run", Command(options=ClaimsRun, run=run, section="put claims on trial"))
