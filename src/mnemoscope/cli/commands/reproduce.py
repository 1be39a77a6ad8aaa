"""`mnemoscope reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

import mnemoscope as ms
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import JobOptions, RegisteredNames, ReportOptions, ResultOptions
from mnemoscope.cli.parse import default_system, parse_seeds

if TYPE_CHECKING:
    from mnemoscope.claims.ruling import Ruling


@dataclass(frozen=True, kw_only=True)
class Reproduce(JobOptions, ReportOptions, ResultOptions):
    """Train and report a published system and put its claims on trial; a second call continues or only reports.

    Claims about draws need no runs: what was measured for them has a report of its own, and is all that there is of a
    system that trains none.
    """

    system: Positional[Annotated[str | None, RegisteredNames("systems")]] = None
    """Which system; `mnemoscope list systems` shows them. None: the first that has a default preset."""
    full: bool = False
    """Train the models of the published recipe anew, at the paper's sizes, and judge those (hours on two cores)."""
    corpus: Path | None = None
    """Text file in place of the one that the task is made of, for tasks that are made of a text."""
    seeds: str | None = None
    """Seeds in place of the plan's, such as `0-1`."""
    sensitivity: bool = False
    """Ask again with one factor changed at a time, and follow effects over training; takes as long again."""
    jobs: int = 2
    """Worker processes, of one thread each; 0: one per core."""
    out: Path | None = None
    """Directory for runs, arrays, tables, report.html, draws.html, verdicts and index.html; none: reports/<system>."""


def run(options: Reproduce) -> None:
    """Do all that, and write a page that links to it."""
    from mnemoscope.cli.commands.index import refresh

    out = options.out or Path("reports") / (options.system or default_system()[0])
    _reproduce(options, out)
    refresh(out)


def _reproduce(options: Reproduce, out: Path) -> None:
    """Train the system's plan, print the tables, write arrays and the report, and put the claims on trial.

    What the trial over the zoo needs is measured while cores are idle.
    """
    from mnemoscope.claims.variants import with_configurations
    from mnemoscope.cli.ahead import zoo_measured_ahead
    from mnemoscope.cli.output import console
    from mnemoscope.cli.trials import claims_named

    name = options.system or default_system()[0]
    system = ms.SYSTEMS.get(name)
    chosen = parse_seeds(options.seeds) if options.seeds is not None else None
    changes = _corpus_changes(system, options.corpus)
    parts = [
        replace(part, changes=(*part.changes, *changes)) for part in (system.full if options.full else system.quick)
    ]
    if not (system.quick or system.full):
        if options.full or options.corpus is not None or options.seeds is not None:
            raise ms.InputError(f"{name} trains no runs; leave out --full, --corpus and --seeds")
        claims = claims_named((name,))
        if any(claim.of_language_models for claim in claims):
            raise ms.InputError(
                f"{name} is about language models, which are not trained here: "
                f"mnemoscope claims run {name} --model smollm2"
            )
        _report_draws(name, _try_all(claims, [], out, options, title="verdicts"), out, options)
        return
    specs = [spec for part in parts for spec in part.specs(chosen)]
    console.print(_plan(name, specs, out, options.jobs), highlight=False, soft_wrap=True)
    claims = [claim for claim in claims_named(()) if claim.system == name]
    of_zoo = [] if options.full or changes else [claim.id for claim in claims]
    with zoo_measured_ahead(of_zoo, out / "measured", jobs=options.jobs):
        runs = _train_and_report(specs, out, options)
        if not claims:
            console.print(f"there are no claims on {name}", highlight=False)
            return
        for field, value in changes:
            claims = [with_configurations(claim, field, value) for claim in claims]
        if options.full and _answerable_claims(claims, runs):
            _try_all(claims, runs, out, options, title="verdicts", where=["--runs", str(out / "runs")])
            return
        _try_fresh(claims, runs, out, options)
    if changes:
        console.print("the zoo holds models of the system's own text only; its verdicts are left out", highlight=False)
    else:
        _report_draws(name, _try_zoo(claims, out, options), out, options)


def _train_and_report(specs: Sequence[ms.RunSpec], out: Path, options: Reproduce) -> list[ms.Run]:
    """Train what is left, follow what is followed, write tables and the report; return all runs."""
    from mnemoscope.cli.commands.runs import track_all
    from mnemoscope.cli.commands.train import train_with_progress

    found = _train_first_seeds(specs, out, options)
    runs = train_with_progress(specs, out / "runs", options.jobs)
    if followed := [run for run in runs if ms.report.find_report(run.spec.task).trajectory is not None]:
        track_all(followed, options.jobs)
        for run in followed:  # a trajectory belongs to what is found of a run
            found.pop(run.path, None)
    _write_tables(runs, out, options, found)
    return runs


def _plan(name: str, specs: Sequence[ms.RunSpec], out: Path, jobs: int) -> str:
    """Say what will be done and how long it takes on a core of average speed."""
    from mnemoscope.report.tables import pluralise
    from mnemoscope.run.executor import n_processes
    from mnemoscope.run.sweep import run_path

    left = [spec for spec in specs if not ms.Run(run_path(out / "runs", spec), spec).finished]
    after = "tables, a report and verdicts on the claims"
    if not left:
        return f"{name}: all {pluralise(len(specs), 'model')} are trained; {after} follow"
    processes = min(n_processes(jobs), len(left))
    minutes = sum(map(_seconds_of_training, left)) / processes / 60
    duration = f"{minutes:.0f} min" if 1 <= minutes < 90 else "a minute" if minutes < 1 else f"{minutes / 60:.0f} hours"
    n_steps = sum(spec.recipe.n_steps for spec in left)
    return (
        f"{name}: trains {len(left)} of {pluralise(len(specs), 'model')} ({n_steps:,} steps; about {duration} with "
        f"--jobs {processes}), then makes {after}, which takes about as long again; results go to {out}"
    )


def _seconds_of_training(spec: ms.RunSpec) -> float:
    """Estimate from a fixed cost and 60 GFLOP/s per layer and step."""
    flops = 72 * spec.model.d_model**2 * spec.task.n_ctx * spec.recipe.batch_size
    return spec.recipe.n_steps * spec.model.n_layers * (0.0015 + flops / 6e10)


def _corpus_changes(system: ms.System, corpus: Path | None) -> tuple[tuple[str, object], ...]:
    from mnemoscope.cli.commands.train import with_corpus

    if corpus is None:
        return ()
    presets = [preset for part in (*system.quick, *system.full) for preset in part.presets]
    return tuple(with_corpus(presets, corpus).items())


def _train_first_seeds(specs: Sequence[ms.RunSpec], out: Path, options: Reproduce) -> dict[Path, ms.report.Results]:
    """Train the first seed of every configuration before all others; print, draw and return its results by directory.

    There are none if nothing was left to train, or there are no other seeds.
    """
    from mnemoscope.cli.commands.report import analyse_all, write_report
    from mnemoscope.cli.commands.train import train_with_progress
    from mnemoscope.cli.output import console, show
    from mnemoscope.report.tables import pluralise
    from mnemoscope.run.sweep import run_path

    firsts = list({run_path(out / "runs", spec).parent: spec for spec in reversed(specs)}.values())[::-1]
    left = [spec for spec in specs if not ms.Run(run_path(out / "runs", spec), spec).finished]
    found: dict[Path, ms.report.Results] = {}
    if len(left) <= len(firsts):
        return found
    early = train_with_progress(firsts, out / "runs", options.jobs)
    parts = analyse_all(early, options.jobs, found)
    write_report(out / "report.html", early, parts, replace(options, explore=False, figures=()))
    for entry, results in parts:
        for table in entry.tables(results):
            show(f"First look, one seed each: {table.title}", table.header, table.rows, n_text=table.n_text)
    others = pluralise(len(specs) - len(firsts), "other run")
    console.print(
        f"{others} to train and to analyse; then the same tables, and the page anew, over all seeds", highlight=False
    )
    return found


def _write_tables(runs: Sequence[ms.Run], out: Path, options: Reproduce, found: dict[Path, ms.report.Results]) -> None:
    """Write tables of what was learned, and the report; `found` holds the known results of some runs.

    Tables of several tasks lie in a directory for each.
    """
    from mnemoscope.cli.commands.report import analyse_all, write_report
    from mnemoscope.cli.output import show, write_arrays, write_table

    parts = analyse_all(runs, options.jobs, found)
    tasks = {run.label: run.spec.task.name for run in runs}
    for entry, results in parts:
        place = out / "tables" / (tasks[next(iter(results))] if len(parts) > 1 else "")
        for label, result in results.items():
            write_arrays(out / "arrays" / label, result)
        for table in entry.tables(results):
            write_table(place, table, latex=options.latex)
    write_report(out / "report.html", runs, parts, options)
    for entry, results in parts:
        for table in entry.tables(results):
            show(table.title, table.header, table.rows, n_text=table.n_text)


def _report_draws(name: str, rulings: Sequence[Ruling], out: Path, options: Reproduce) -> None:
    """Tables and a page on what was measured for claims about draws, if the system has such a report."""
    from mnemoscope.claims.evidence import as_dataset
    from mnemoscope.cli.output import console, show, write_page, write_table

    results = {
        ruling.claim.id: as_dataset(ruling.evidence.effects) for ruling in rulings if ruling.claim.replicate == "draw"
    }
    if not results or name not in ms.report.DRAW_REPORTS.names():
        return
    entry = ms.report.DRAW_REPORTS.get(name)
    tables = entry.tables(results)
    for table in tables:
        write_table(out / "tables", table, latex=options.latex)
    page = ms.report.Page(entry.title)
    entry.page(page, results)
    write_page(out / "draws.html", page.html(), page.figures, options)
    for table in tables:
        show(table.title, table.header, table.rows, n_text=table.n_text)
    console.print(f"wrote {out / 'draws.html'}", highlight=False)


def _answerable_claims(claims: Sequence[ms.Claim], runs: Sequence[ms.Run]) -> list[ms.Claim]:
    """The claims about models that some seed of the runs can answer."""
    from mnemoscope.claims.replicates import admit_runs

    admitted = admit_runs(runs, claims)
    return [claim for claim in claims if claim.units and admitted.seeds(claim)]


def _try_fresh(claims: Sequence[ms.Claim], fresh: Sequence[ms.Run], out: Path, options: Reproduce) -> None:
    """The claims that the new runs can answer, over these."""
    from mnemoscope.claims.variants import with_recipe
    from mnemoscope.cli.output import console
    from mnemoscope.cli.trials import try_claims

    recipe = fresh[0].spec.recipe.name
    moved = {claim.id: moved for claim in claims if claim.units and (moved := with_recipe(claim, recipe))}
    ids = {claim.id for claim in _answerable_claims(list(moved.values()), fresh)}
    if not ids:
        console.print(f"no claim is made of such models, {recipe} recipe; they are not tried", highlight=False)
        return
    try_claims(
        [claim for claim in claims if claim.id in ids],
        fresh,
        out / "verdicts-fresh",
        title=f"the same asked of the runs just trained, {recipe} recipe",
        recipe=recipe,
        sensitivity=False,
        emergence=False,
        jobs=options.jobs,
        store=out / "measured",
        where=["--runs", str(out / "runs"), "--recipe", recipe],
        options=options,
    )


def _try_zoo(claims: Sequence[ms.Claim], out: Path, options: Reproduce) -> list[Ruling]:
    """All claims over the runs that came with the package; the controls are those of the new runs."""
    from mnemoscope.cli.output import console
    from mnemoscope.cli.trials import claims_for_zoo
    from mnemoscope.models.zoo import not_installed

    if absent := not_installed():
        console.print(f"verdicts over the zoo are left out: {absent}", highlight=False, markup=False)
        return []
    zoo = ms.find_runs([Path("zoo")])
    there, sentences = claims_for_zoo(claims, zoo)
    for sentence in sentences:
        console.print(sentence, highlight=False, markup=False)
    if there:
        return _try_all(there, zoo, out, options, title="verdicts over the zoo", where=["--zoo"])
    return []


def _try_all(
    claims: Sequence[ms.Claim],
    runs: Sequence[ms.Run],
    out: Path,
    options: Reproduce,
    *,
    title: str,
    where: Sequence[str] = (),
) -> list[Ruling]:
    """The verdicts that the command ends with, and what else can be had."""
    from mnemoscope.cli.output import console
    from mnemoscope.cli.trials import try_claims

    rulings = try_claims(
        claims,
        runs,
        out / "verdicts",
        title=title,
        sensitivity=options.sensitivity,
        emergence=options.sensitivity,
        jobs=options.jobs,
        store=out / "measured",
        options=options,
        where=where,
    )
    if not options.sensitivity:
        console.print("--sensitivity adds how far each verdict depends on its factors, and effects over training")
    return rulings


COMMANDS.add("reproduce", Command(options=Reproduce, run=run, section="test a claim"))
