"""Trials of claims with a live table, and the files that they leave."""

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

from mnemoscope.claims.arrays import evidence_arrays
from mnemoscope.claims.claim import CLAIMS, Claim
from mnemoscope.claims.false_discoveries import describe_discoveries
from mnemoscope.claims.replicates import AdmittedRuns, admit_runs
from mnemoscope.claims.ruling import Ruling, write_rulings
from mnemoscope.claims.trials import Progress, run_trials
from mnemoscope.cli.options import ResultOptions
from mnemoscope.cli.output import console, regular_lines, show, write_arrays, write_page, write_table
from mnemoscope.cli.provenance import provenance_html
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import one_of
from mnemoscope.core.presets import label_of
from mnemoscope.models.run import Run, by_label
from mnemoscope.models.zoo import INSTALL, missing
from mnemoscope.report.rulings import (
    ORIGINALS,
    ORIGINALS_HEADER,
    UNJUDGED,
    UNJUDGED_HEADER,
    VERDICT_HEADER,
    AttentionExample,
    original_rows,
    rulings_sheet,
    shorten_rows,
    unjudged_rows,
    verdict_tables,
)
from mnemoscope.report.rulings.words import CONFIRMED_NOTE, registered_notes, selection_notes
from mnemoscope.report.tables import pluralise
from mnemoscope.report.task_report import find_report, run_attention
from mnemoscope.run.executor import analyse_many


def claims_named(words: Sequence[str]) -> list[Claim]:
    """The claims with these ids or of these systems, each once; all if there are no words."""
    claims = [CLAIMS.get(name) for name in CLAIMS.names()]
    claims.sort(key=lambda claim: (claim.system, len(claim.id), claim.id))
    known = dict.fromkeys([*(claim.system for claim in claims), *(claim.id for claim in claims)])
    for word in words:
        one_of("a claim or a system", word, known)
    return [claim for claim in claims if not words or claim.id in words or claim.system in words]


MANY_TOKENS = 16
"""Sequences with more tokens than this are seen in the view only."""


def claims_for_zoo(claims: Sequence[Claim], runs: Sequence[Run]) -> tuple[list[Claim], list[str]]:
    """The claims without those about models that the zoo does not hold, and a sentence for each system with such."""
    admitted = admit_runs(runs, claims)
    absent = [claim for claim in claims if claim.units and not admitted.seeds(claim)]
    sentences = []
    for system in dict.fromkeys(claim.system for claim in absent):
        of_system = [claim for claim in claims if claim.units and claim.system == system]
        without = [claim.id for claim in absent if claim.system == system]
        some = f"{', '.join(without)} {'is' if len(without) == 1 else 'are'}"
        which = f"the claims on {system} are" if len(without) == len(of_system) else some
        bring = f"{INSTALL} brings some" if missing() else "train some, and name them with --runs"
        sentences.append(f"the zoo holds no models that {which} about; {bring}")
    return [claim for claim in claims if claim not in absent], sentences


def claims_without_runs(claims: Sequence[Claim], runs: Sequence[Run]) -> list[str]:
    """A sentence for each claim that none of the runs is about, with the configurations of both."""
    admitted, given = admit_runs(runs, claims), ", ".join(by_label(runs))
    sentences = []
    for claim in claims:
        if runs and claim.units and not admitted.seeds(claim) and not claim.of_language_models:
            wanted = ", ".join(dict.fromkeys(label_of(unit.spec(0)) for unit in claim.units.values()))
            sentences.append(f"{claim.id} is about runs of {wanted}; those given are of {given}")
    return sentences


def try_claims(
    claims: Sequence[Claim],
    runs: Sequence[Run],
    out: Path,
    *,
    title: str,
    options: ResultOptions,
    where: Sequence[str] = (),
    recipe: str | None = None,
    jobs: int = 0,
    store: Path | None = None,
    **how: Any,
) -> list[Ruling]:
    """Put claims on trial with a live table; write verdicts.json, report.html, evidence and tables to `out`.

    Measurements are kept in `store`, or in `out` if none is given. `options` say which figures and tables are written
    in other formats too. `where` are the words of the command line that name the models, for the command that
    reproduces a verdict. `how` are other arguments of `run_trials`.
    """
    with _live(claims) as report:
        store = store or out / "measured"
        rulings = run_trials(claims, runs, recipe=recipe, jobs=jobs, store=store, report=report, **how)
    with console.status("verdicts are written, with a page of figures"):
        for table in verdict_tables(rulings):
            write_table(out, table, latex=options.latex)
        write_arrays(out / "evidence", {ruling.claim.id: evidence_arrays(ruling) for ruling in rulings})
        write_rulings(rulings, out / "verdicts.json")
        admitted = admit_runs(runs, [ruling.claim for ruling in rulings])
        sheet = rulings_sheet(
            rulings,
            title=title,
            lead=_lead(rulings, admitted, recipe),
            examples=attention_examples(rulings, admitted, jobs),
            sources={ruling.claim.id: provenance_html(ruling, admitted, where, out) for ruling in rulings},
        )
        write_page(out / "report.html", sheet.html(), sheet.figures, options)
    _show_rulings(title, rulings)
    console.print(f"wrote {out / 'verdicts.json'} and {out / 'report.html'}", highlight=False)
    return rulings


def _show_rulings(title: str, rulings: Sequence[Ruling]) -> None:
    """Print the verdicts with their notes."""
    show(title, VERDICT_HEADER, shorten_rows(rulings), n_text=4)
    notes = registered_notes((ruling.claim.id, ruling.departures, ruling.code) for ruling in rulings)
    for note in (CONFIRMED_NOTE, *notes, *selection_notes(rulings), *filter(None, [describe_discoveries(rulings)])):
        console.print(note, highlight=False, markup=False)
    for ruling in rulings:
        if ruling.multiverse is not None:
            console.print(f"{ruling.claim.id}: {ruling.multiverse.sentence}", highlight=False, markup=False)
    if rows := unjudged_rows(rulings):
        show(UNJUDGED, UNJUDGED_HEADER, rows, n_text=2)
    if rows := original_rows(rulings):
        show(ORIGINALS, ORIGINALS_HEADER, rows, n_text=3)


def attention_examples(
    rulings: Sequence[Ruling], admitted: AdmittedRuns, jobs: int
) -> dict[str, list[AttentionExample]]:
    """The attention of a typical and of a deviating seed on one sequence, for claims about one configuration."""
    chosen: list[tuple[str, str, Run]] = []
    for ruling in rulings:
        for kind, seed in (("typical", ruling.typical()), ("deviating", ruling.deviating())):
            if len(ruling.claim.units) == 1 and isinstance(seed, int):
                (unit,) = ruling.claim.units.values()
                chosen.append((ruling.claim.id, kind, admitted.finished[unit][seed]))
    runs = list({run.path: run for _, _, run in chosen}.values())  # claims share their typical seeds
    views = dict(zip([run.path for run in runs], analyse_many(runs, _sequence_attention, jobs=jobs), strict=True))
    found: dict[str, list[AttentionExample]] = {}
    for id, kind, run in chosen:
        found.setdefault(id, []).append(_example(run, kind, *views[run.path]))
    return found


def _sequence_attention(run: Run) -> tuple[Batch, xr.Dataset]:
    batch = find_report(run.spec.task).example(run.spec.task)
    return batch, run_attention(run, batch)


def _example(run: Run, kind: str, batch: Batch, attention: xr.Dataset) -> AttentionExample:
    """A view with its caption, which includes a short sequence."""
    tokens = batch.inputs[0].tolist()
    shown = f", on {' '.join(map(str, tokens))}" if len(tokens) <= MANY_TOKENS else ""
    return AttentionExample(caption=f"A {kind} seed: {run.label}, seed {run.spec.seed}{shown}", attention=attention)


def _lead(rulings: Sequence[Ruling], admitted: AdmittedRuns, recipe: str | None) -> str:
    """The number of runs that the claims were measured on (not of rivals and tables), and the language models."""
    claims = [ruling.claim for ruling in rulings]
    seeds = [(unit, admitted.seeds(claim)) for claim in claims for unit in claim.units.values()]
    measured = {admitted.finished[unit][seed].path for unit, each in seeds for seed in each}
    named = list(dict.fromkeys(model for ruling in rulings for model in ruling.evidence.models))
    sentences = []
    if measured or not named:
        models = f"{pluralise(len(measured), 'trained model')} that the claims are about"
        sentences.append(f"{models}; a seed is the unit of replication.")
    if named:
        kinds = dict.fromkeys(ruling.claim.replicate for ruling in rulings if ruling.evidence.models)
        models = f"Asked of {pluralise(len(named), 'language model')}, {', '.join(named)}"
        sentences.append(f"{models}; a {' or a '.join(kinds)} is the unit of replication.")
    if recipe:
        sentences.append(f"All claims are tried on models of the {recipe} recipe.")
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

    latest: Mapping[str, tuple[int, int]] = {}

    def in_words() -> str:
        n, of = map(sum, zip((0, 0), *latest.values(), strict=True))
        return f"{pluralise(len(claims), 'claim')} on trial, {n} of {of or '?'} measurements"

    with Live(table({}), console=console, transient=True, auto_refresh=False) as shown, regular_lines(in_words):

        def report(progress: Progress) -> None:
            nonlocal latest
            latest = dict(progress)
            shown.update(table(progress), refresh=console.is_terminal)

        yield report


def time_left(seconds: float, n_done: int, n: int) -> str:
    """The duration of the rest at the pace so far; nothing before there is a pace."""
    if not n_done:
        return ""
    left = round(seconds * (n - n_done) / n_done)
    return f"about {timedelta(seconds=left)} left"
