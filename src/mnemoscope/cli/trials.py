"""Trials of claims with a live table, and the files that they leave."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import xarray as xr
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mnemoscope.claims.admission import Bench, find_bench
from mnemoscope.claims.claim import Claim
from mnemoscope.claims.evidence import as_dataset
from mnemoscope.claims.trials import Progress, run_trials
from mnemoscope.claims.verdict import Ruling, record
from mnemoscope.cli.options import WritesResults
from mnemoscope.cli.output import console, show, write_arrays, write_page, write_table
from mnemoscope.cli.provenance import pieces
from mnemoscope.core.batch import Batch
from mnemoscope.models.files import write_atomically
from mnemoscope.models.run import Run
from mnemoscope.models.zoo import INSTALL, missing
from mnemoscope.report.reporting import report_of, view_of
from mnemoscope.report.rulings import (
    UNJUDGED,
    UNJUDGED_HEADER,
    VERDICT_HEADER,
    Example,
    in_short,
    rulings_sheet,
    unjudged_rows,
    verdict_rows,
    verdict_tables,
)
from mnemoscope.report.tables import counted
from mnemoscope.run.local import analyse_many

MANY_TOKENS = 16
"""Sequences with more tokens than this are seen in the view only."""


def answered_by_zoo(claims: Sequence[Claim], runs: Sequence[Run]) -> tuple[list[Claim], list[str]]:
    """The claims without those about models that the zoo does not hold, and a sentence for each system with such."""
    bench = find_bench(runs, claims)
    absent = [claim for claim in claims if claim.units and not bench.seeds(claim)]
    sentences = []
    for system in dict.fromkeys(claim.system for claim in absent):
        of_system = [claim for claim in claims if claim.units and claim.system == system]
        without = [claim.id for claim in absent if claim.system == system]
        some = f"{', '.join(without)} {'is' if len(without) == 1 else 'are'}"
        which = f"the claims on {system} are" if len(without) == len(of_system) else some
        bring = f"{INSTALL} brings some" if missing() else "train some, and name them with --runs"
        sentences.append(f"the zoo holds no models that {which} about; {bring}")
    return [claim for claim in claims if claim not in absent], sentences


def try_claims(
    claims: Sequence[Claim],
    runs: Sequence[Run],
    out: Path,
    *,
    title: str,
    models: Sequence[str] = (),
    device: str = "cpu",
    dtype: str = "float32",
    recipe: str | None = None,
    sensitivity: bool = True,
    emergence: bool = True,
    jobs: int = 0,
    store: Path | None = None,
    options: WritesResults | None = None,
    where: Sequence[str] = (),
) -> list[Ruling]:
    """Put claims on trial with a live table; write verdicts.json, report.html, evidence and tables to `out`.

    Measurements are kept in `store`, or in `out` if none is given. `options` say which figures and tables are written
    in other formats too. `where` are the words of the command line that name the models, for the command that
    reproduces a verdict.
    """
    with _live(claims) as report:
        rulings = run_trials(
            claims,
            runs,
            models=models,
            device=device,
            dtype=dtype,
            recipe=recipe,
            sensitivity=sensitivity,
            emergence=emergence,
            jobs=jobs,
            store=store or out / "measured",
            report=report,
        )
    options = options or WritesResults()
    show(title, VERDICT_HEADER, in_short(verdict_rows(rulings)), n_text=4)
    if rows := unjudged_rows(rulings):
        show(UNJUDGED, UNJUDGED_HEADER, rows, n_text=2)
    with console.status("verdicts are written, with a page of figures"):
        for table in verdict_tables(rulings):
            write_table(out, table, latex=options.latex)
        write_arrays(out / "evidence", {ruling.claim.id: as_dataset(ruling.evidence.effects) for ruling in rulings})
        verdicts = json.dumps([record(ruling) for ruling in rulings], indent=2, allow_nan=False)
        write_atomically(out / "verdicts.json", (verdicts + "\n").encode())
        bench = find_bench(runs, [ruling.claim for ruling in rulings])
        sheet = rulings_sheet(
            rulings,
            title=title,
            lead=_lead(rulings, runs, recipe),
            examples=examples(rulings, bench, jobs),
            sources={ruling.claim.id: pieces(ruling, bench, where, out) for ruling in rulings},
        )
        write_page(out / "report.html", sheet.html(), sheet.page.figures, options)
    console.print(f"wrote {out / 'verdicts.json'} and {out / 'report.html'}", highlight=False)
    return rulings


def examples(rulings: Sequence[Ruling], bench: Bench, jobs: int) -> dict[str, list[Example]]:
    """The attention of a typical and of a deviating seed on one sequence, for claims about one configuration."""
    chosen: list[tuple[str, str, Run]] = []
    for ruling in rulings:
        for kind, seed in (("typical", ruling.typical()), ("deviating", ruling.deviating())):
            if len(ruling.claim.units) == 1 and isinstance(seed, int):
                (unit,) = ruling.claim.units.values()
                chosen.append((ruling.claim.id, kind, bench.finished[unit][seed]))
    runs = list({run.path: run for _, _, run in chosen}.values())  # claims share their typical seeds
    views = dict(zip([run.path for run in runs], analyse_many(runs, _view, jobs=jobs), strict=True))
    found: dict[str, list[Example]] = {}
    for id, kind, run in chosen:
        found.setdefault(id, []).append(_example(run, kind, *views[run.path]))
    return found


def _view(run: Run) -> tuple[Batch, xr.Dataset]:
    batch = report_of(run.spec.task).example(run.spec.task)
    return batch, view_of(run, batch)


def _example(run: Run, kind: str, batch: Batch, attention: xr.Dataset) -> Example:
    """A view with its caption, which includes a short sequence."""
    tokens = batch.inputs[0].tolist()
    shown = f", on {' '.join(map(str, tokens))}" if len(tokens) <= MANY_TOKENS else ""
    return Example(caption=f"A {kind} seed: {run.label}, seed {run.spec.seed}{shown}", attention=attention)


def _lead(rulings: Sequence[Ruling], runs: Sequence[Run], recipe: str | None) -> str:
    """The number of runs that the claims were measured on (not of rivals and tables), and the language models."""
    claims = [ruling.claim for ruling in rulings]
    bench = find_bench(runs, claims)
    seeds = [(unit, bench.seeds(claim)) for claim in claims for unit in claim.units.values()]
    measured = {bench.finished[unit][seed].path for unit, each in seeds for seed in each}
    named = list(dict.fromkeys(model for ruling in rulings for model in ruling.evidence.models))
    sentences = []
    if measured or not named:
        models = f"{counted(len(measured), 'trained model')} that the claims are about"
        sentences.append(f"{models}; a seed is the unit of replication.")
    if named:
        kinds = dict.fromkeys(ruling.claim.replicate for ruling in rulings if ruling.evidence.models)
        models = f"Asked of {counted(len(named), 'language model')}, {', '.join(named)}"
        sentences.append(f"{models}; a {' or a '.join(kinds)} is the unit of replication.")
    if recipe:
        sentences.append(f"All claims are asked of models of the {recipe} recipe.")
    return " ".join(sentences)


@contextmanager
def _live(claims: Sequence[Claim]) -> Iterator[Any]:
    """A table of measurements so far, one line per claim."""
    began = monotonic()

    def table(done: Mapping[str, tuple[int, int]]) -> Table:
        rows = Table("claim", "statement", "measured", title="on trial", title_justify="left", title_style="bold")
        for claim in claims:
            n, of = done.get(claim.id, (0, 0))
            rows.add_row(claim.id, Text(claim.statement, overflow="ellipsis", no_wrap=True), f"{n} of {of or '?'}")
        rows.caption = time_left(monotonic() - began, *map(sum, zip((0, 0), *done.values(), strict=True)))
        return rows

    with Live(table({}), console=console, transient=True, auto_refresh=False) as shown:

        def report(progress: Progress) -> None:
            shown.update(table(progress), refresh=console.is_terminal)

        yield report


def time_left(seconds: float, n_done: int, n: int) -> str:
    """The duration of the rest at the pace so far; nothing before there is a pace."""
    if not n_done:
        return ""
    left = round(seconds * (n - n_done) / n_done)
    return f"about {timedelta(seconds=left)} left"
