"""`mnemoscope methods`: methods of circuit discovery on circuits that are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mnemoscope.cli.command import COMMANDS, SECTIONS, Command
from mnemoscope.cli.options import JobOptions, ResultOptions
from mnemoscope.cli.refusals import check_out
from mnemoscope.core.errors import in_range


@dataclass(frozen=True, kw_only=True)
class Methods(JobOptions, ResultOptions):
    """Methods of circuit discovery on circuits that are known: which edges each finds, and how faithful they are.

    Results of a circuit are kept in OUT/measured: the same call goes on where it was interrupted. Files of --import add
    methods and known circuits (`ms.methods.METHODS`, `ms.methods.KNOWN_CIRCUITS`).
    """

    circuits: tuple[str, ...] = ()
    """Names of known circuits; none: all whose models are installed."""
    methods: tuple[str, ...] = ()
    """Names of methods; none: all."""
    n: int = 32
    """Pairs of prompts that score edges, and as many others on which circuits are judged."""
    draws: int = 2
    """Draws of pairs for each circuit."""
    noise_draws: int = 1
    """Draws of the noise of circuits that have any."""
    seed: int = 0
    """Draws pairs, random scores, orders and masks."""
    out: Path = Path("results/methods")
    """Arrays, tables and a page with figures go here in place of earlier ones."""


def run(options: Methods) -> None:
    """Try every method on every circuit; write arrays, tables and the page."""
    check_out(options.out, is_file=False)
    in_range("--n", options.n, 2, float("inf"))
    in_range("--draws", options.draws, 1, float("inf"))
    in_range("--noise-draws", options.noise_draws, 1, float("inf"))
    import mnemoscope as ms
    from mnemoscope.cli.analysis import fill_page, write_results
    from mnemoscope.cli.output import countdown
    from mnemoscope.methods import tables
    from mnemoscope.methods.trial import measure_piece, pieces_of, tree_of
    from mnemoscope.records.record import Display
    from mnemoscope.run.executor import analyse_many

    pieces = pieces_of(
        options.circuits or None,
        options.methods or None,
        n=options.n,
        n_draws=options.draws,
        n_noise=options.noise_draws,
        seed=options.seed,
        store=options.out / "measured",
    )
    results = []
    with countdown(len(pieces), "known circuits") as advance:
        for result in analyse_many(pieces, measure_piece, jobs=options.jobs):
            results.append(result)
            advance()
    tried = tree_of(results)
    summary = ms.methods.summarise(tried, seed=options.seed)
    spread = ms.methods.variance_components(tried)
    by_kind = tables.kind_table(tried, options.seed)
    shown = Display(
        tables=[
            tables.method_table(summary),
            *([] if by_kind is None else [by_kind]),
            tables.component_table(spread),
            tables.circuit_table(tried),
            tables.method_list(summary.finder.values.tolist()),
        ],
        figures=tables.figures(tried, summary),
        finding=tables.finding(summary),
        notes=tables.LIMITS,
    )
    title = f"{summary.sizes['finder']} methods on {summary.attrs['n_circuits']} known circuits"
    page = ms.report.Page(f"methods: {title}", "")
    fill_page(page, shown)
    found = {"methods": summary, "components": spread, "circuits": tried}
    write_results("methods", title, found, shown.tables, page, options.out, finding=shown.finding, options=options)


COMMANDS.add("methods", Command(options=Methods, run=run, section=SECTIONS[2]))
