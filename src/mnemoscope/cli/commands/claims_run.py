"""`mnemoscope claims run`."""

from pathlib import Path

from mnemoscope.cli.claims import answered_by_zoo, claims_called, try_claims
from mnemoscope.cli.options import ClaimsRun
from mnemoscope.cli.output import console
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.models.run import find_runs
from mnemoscope.sweeps.trials import asked_of

RECIPES = ("quick", "published")


def run(options: ClaimsRun) -> None:
    """Measure, judge, print and write."""
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
    runs = find_runs(paths)
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
