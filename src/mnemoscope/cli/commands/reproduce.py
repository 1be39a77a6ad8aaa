"""`mnemoscope reproduce`."""

from collections.abc import Sequence
from pathlib import Path

from mnemoscope.cli.claims import claims_called, try_claims
from mnemoscope.cli.commands.report import examine_all, write_report
from mnemoscope.cli.commands.train import train_with_progress
from mnemoscope.cli.options import Reproduce
from mnemoscope.cli.output import show, write_arrays, write_table
from mnemoscope.cli.parse import parse_seeds
from mnemoscope.core.presets import SYSTEMS
from mnemoscope.models.run import Run, find_runs
from mnemoscope.sweeps.questions import asked_of, find_bench, seeds_of
from mnemoscope.viz.tables import LEARNED_HEADER, PUBLISHED_HEADER, learned_rows, published_rows


def run(options: Reproduce) -> None:
    """Train the system's plan, print the tables, write arrays and the report, and put the claims on trial."""
    system = SYSTEMS.get(options.system)
    chosen = parse_seeds(options.seeds) if options.seeds is not None else None
    parts = system.full if options.full else system.quick
    specs = [spec for part in parts for spec in part.specs(chosen)]
    runs = train_with_progress(specs, options.out / "runs", options.jobs)
    _tables(runs, options)
    if options.full:
        try_claims(claims_called([options.system]), runs, options.out / "verdicts", title="verdicts", jobs=options.jobs)
    else:
        _try_zoo_and_fresh(runs, options)


def _tables(runs: Sequence[Run], options: Reproduce) -> None:
    """What was learned, beside the published figures."""
    results = examine_all(runs, options.jobs)
    for label, result in results.items():
        write_arrays(options.out / "arrays" / label, result)
        if rows := published_rows(result, result["metrics"].attrs["preset"]):
            show(f"{label} beside the published figures", PUBLISHED_HEADER, rows)
            write_table(options.out / "tables" / f"{label}-published.csv", PUBLISHED_HEADER, rows)
    rows = learned_rows(results)
    show("What was learned: mean [range] over seeds, unseen mappings", LEARNED_HEADER, rows)
    write_table(options.out / "tables" / "learned.csv", LEARNED_HEADER, rows)
    write_report(options.out / "report.html", results)


def _try_zoo_and_fresh(fresh: Sequence[Run], options: Reproduce) -> None:
    """All claims over the runs that came with the package; those that the new runs can answer, over these too."""
    recipe = fresh[0].spec.recipe.name
    claims = claims_called([options.system])
    asked = {claim.id: moved for claim in claims if claim.units and (moved := asked_of(claim, recipe))}
    bench = find_bench(fresh, list(asked.values()))
    answerable = [claim for claim in claims if claim.id in asked and seeds_of(asked[claim.id], bench)]
    store = options.out / "measured"  # the controls are the same
    title = f"the same asked of the runs just trained, {recipe} recipe"
    try_claims(
        answerable,
        fresh,
        options.out / "verdicts-fresh",
        title=title,
        recipe=recipe,
        sensitivity=False,
        emergence=False,
        jobs=options.jobs,
        store=store,
    )
    zoo = find_runs([Path("zoo")])
    try_claims(claims, zoo, options.out / "verdicts", title="verdicts over the zoo", jobs=options.jobs, store=store)
