"""`mnemoscope claims verify`: the evidence of claims compared with runs and measurements of today."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import UseAppendAction

import mnemoscope as ms
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import ClaimOptions, RunPaths
from mnemoscope.core.errors import InputError, pluralise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mnemoscope.claims.claim import Claim
    from mnemoscope.claims.measures import Work


@dataclass(frozen=True, kw_only=True)
class ClaimsVerify(ClaimOptions):
    """Check the evidence of a trial: digests of files, a share of its measurements taken again, a run trained again.

    It ends with rc 2 where something differs. Else the next `claims run` with this OUT says on its page what was
    verified.
    """

    runs: RunPaths = ()
    """The runs of the trial, as for `claims run`."""
    zoo: bool = False
    """Take the installed trained runs too."""
    model: UseAppendAction[tuple[str, ...]] = ()
    """Language models of the trial; may be repeated."""
    device: str = "cpu"
    """Device of the language models."""
    dtype: str = "float32"
    """Precision of the weights of language models."""
    out: Path = Path("verdicts")
    """The directory of the trial."""
    store: Path | None = None
    """The --store of the trial; none: OUT/measured."""
    share: float = 0.1
    """Share of the kept measurements that are taken again."""
    replays: int = 1
    """Runs whose first steps are trained again."""
    seed: int | None = None
    """Draws what is taken again; none: one of chance, which is printed."""


def claims_verify(options: ClaimsVerify) -> None:
    """Print what was verified, what cannot be, and what differs; raises InputError where something differs."""
    from mnemoscope.claims.measures import RunWork
    from mnemoscope.claims.verification import edited_entries, measure_again, note_verified
    from mnemoscope.cli.output import console, show
    from mnemoscope.models.derived import check_files
    from mnemoscope.run.verification import verify_runs

    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    console.print(f"what is taken again is drawn with seed {seed} (--seed {seed} draws the same)", highlight=False)
    store = options.store or options.out / "measured"
    work, own = _plan(options)
    runs = list({piece.run.path: piece.run for piece in work if isinstance(piece, RunWork)}.values())
    differs: list[str] = []
    rows: list[list[str]] = []

    def count(what: str, good: int, unknown: int, bad: Sequence[str]) -> None:
        rows.append([what, str(good), str(unknown), str(len(bad))])
        differs.extend(bad)

    with console.status("digests are compared"):
        files = [check_files(run.path, run.label, run.spec.seed, trajectory_weights=True) for run in runs]
        edited = edited_entries(work, store)
    same = sum(each.state == "same" for each in files)
    count("files of runs", same, len(files) - same, [each.problem for each in files if each.problem])
    with console.status("runs are inspected"):
        states = [run for each in verify_runs(runs, replays=0) for run in each.runs] if runs else []
    good = sum(each.state == "verified" for each in states)
    refused = [str(each) for each in states if each.state == "refused"]
    count("runs as trainings of their own", good, len(states) - good - len(refused), refused)
    replayed = _draw(runs, options.replays, seed)
    with console.status("runs are trained again"):
        again = [run for each in replayed for found in verify_runs([each], replays="one") for run in found.runs]
    agree = sum(each.replayed is not None and each.replayed.agrees for each in again)
    refused = [str(each) for each in again if each.state == "refused"]
    count("first steps trained again", agree, len(again) - agree - len(refused), refused)
    with console.status("measurements are taken again"):
        measured, n_kept = measure_again(work, store, share=options.share, seed=seed, jobs=options.jobs)
    count("digests of kept measurements", n_kept, 0, edited)
    wrong = [f"{store / each.name}.json: {each.key} differs by {each.difference:.2g}"
             for each in measured if not each.agrees]  # fmt: skip
    count("measurements taken again", len(measured) - len(wrong), n_kept - len(measured), wrong)
    show("the evidence", ("what", "verified", "unverified", "differs"), rows)
    for line in differs:
        console.print(line, highlight=False, markup=False)
    if differs:
        raise InputError(f"{pluralise(len(differs), 'thing')} in the evidence differ: {differs[0]}")
    found = f"{len(measured)} of {n_kept} measurements taken again (seed {seed}) and equal"
    trained = f"{len(states)} runs inspected, {good} of them verified, {agree} trained again for some steps"
    note_verified(own, store, f"{found}; {trained}" if runs else found)
    console.print(f"{found}; noted in {store}", highlight=False)


def _plan(options: ClaimsVerify) -> tuple[list[Work], dict[str, list[Work]]]:
    """All measurements of a trial, with those of a multiverse, and the ones behind each verdict, by id of the claim."""
    from mnemoscope.claims.replicates import adapt_to_models, admit_runs, language_models
    from mnemoscope.claims.trials import plan_work, questions_with_models
    from mnemoscope.claims.variants import claim_universes, claim_variants
    from mnemoscope.cli.trials import claims_named
    from mnemoscope.models.zoo import WORD, labels

    paths = [*options.runs, *(Path(f"{WORD}:{label}") for label in (labels() if options.zoo else ()))]
    asked = language_models(options.model, options.device, options.dtype)
    claims: list[Claim] = [adapt_to_models(claim, asked) for claim in claims_named(options.what)
                           if asked or not claim.of_language_models]  # fmt: skip
    if not paths and any(claim.units for claim in claims):
        raise InputError(
            "claims verify needs the runs of the trial: --zoo for the installed ones, --runs DIR for your own"
        )
    runs = ms.find_runs(paths, without_checkpoint=True) if paths else []
    questions = {claim.id: claim_variants(claim, True) for claim in claims}
    universes = {claim.id: claim_universes(claim) for claim in claims}
    varied = [each for found in universes.values() for _, each in found]
    admitted = admit_runs(runs, [each.claim for each in (*chain(*questions.values()), *varied)], asked)
    work = []
    for id, first in questions.items():
        others = questions_with_models(universes[id], admitted)
        work += plan_work([*first, *others], admitted, emergence=True)
    return work, {id: plan_work(each[:1], admitted, emergence=False) for id, each in questions.items()}


def _draw(runs: Sequence[ms.Run], n: int, seed: int) -> list[Any]:
    """Some runs by chance, each once."""
    import numpy as np

    chosen = np.random.default_rng([seed, 1]).permutation(len(runs))[: max(0, n)]
    return [runs[i] for i in chosen]


COMMANDS.add("claims verify", Command(options=ClaimsVerify, run=claims_verify, section="test a claim"))
