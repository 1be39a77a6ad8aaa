"""`mnemoscope reproduce`."""

from mnemoscope.cli.commands.report import examine_all, write_report
from mnemoscope.cli.commands.train import train_with_progress
from mnemoscope.cli.options import Reproduce
from mnemoscope.cli.output import show, write_arrays, write_table
from mnemoscope.cli.parse import parse_seeds
from mnemoscope.core.presets import SYSTEMS, preset_spec
from mnemoscope.viz.tables import LEARNED_HEADER, PUBLISHED_HEADER, learned_rows, published_rows


def run(options: Reproduce) -> None:
    """Train the system's plan, print the tables, write arrays and the report."""
    system = SYSTEMS.get(options.system)
    chosen = parse_seeds(options.seeds) if options.seeds is not None else None
    specs = [
        preset_spec(preset, part.recipe, seed, changes=dict(part.changes))
        for part in (system.full if options.full else system.quick)
        for preset in part.presets
        for seed in (part.seeds if chosen is None else chosen)
    ]
    runs = train_with_progress(specs, options.out / "runs", options.jobs)
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
