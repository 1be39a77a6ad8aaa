"""Speed and memory against the aims: `python benchmarks/bench.py [--quick] [--json FILE]`.

Rivals run in one process, in turns, and the ratio is the median over repetitions. On one core the clock is processor
time. The exit status does not depend on the figures: a slow or busy machine is no error. Imports stay inside the
functions, because worker processes import this file again.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from timing import Figure

ROWS = (
    "training",
    "sampling",
    "sequences",
    "vectors",
    "facts",
    "puzzles",
    "clamps",
    "markov",
    "equality",
    "processes",
    "cluster",
    "memory",
    "together",
    "patching",
    "language",
    "plain",
    "attribution",
    "edges",
    "paths",
    "features",
    "capacity",
    "explorer",
)


def main() -> None:
    """Measure, print the table, write the figures."""
    parser = argparse.ArgumentParser(description="Measure speed and memory against the aims.")
    parser.add_argument("--quick", action="store_true", help="few repetitions and short runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=ROWS, metavar="ROW", help=", ".join(ROWS))
    options = parser.parse_args()

    import torch
    from rich.console import Console

    torch.set_num_threads(1)
    status = Console(stderr=True)
    figures = []
    for title, work in _measurements(options.only, options.quick):
        with status.status(f"measuring {title} ..."):
            figures += work()
    console = Console()
    console.width = console.width if console.is_terminal else 160
    console.print(_table(figures))
    if options.json:
        content = {"machine": _machine(), "quick": options.quick, "figures": [_plain(figure) for figure in figures]}
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _measurements(only: tuple[str, ...], quick: bool) -> "Iterator[tuple[str, Callable[[], list[Figure]]]]":
    import attribution
    import capacity
    import clamps
    import cluster
    import edges
    import explorer
    import facts
    import features
    import language
    import markov
    import patching
    import paths
    import plain
    import prompts
    import puzzles
    import seeds
    import sequences
    import steps
    import vectors

    n_few, n_many = (3, 15) if quick else (9, 51)
    n_apart = 4 if quick else seeds.N_SEEDS
    devices = {"cpu": seeds.N_SEEDS, "cuda": 256}
    everything: list[tuple[str, str, Callable[[], list[Figure]]]] = [
        ("training", "training steps", lambda: steps.training(n_few)),
        ("sampling", "sampling", lambda: steps.sampling(n_many)),
        ("sequences", "sequences of a chain", lambda: sequences.generation(n_few)),
        ("vectors", "training on vectors", lambda: vectors.vectors(n_few)),
        ("facts", "training on facts", lambda: facts.steps(n_few)),
        ("puzzles", "puzzles and modular addition", lambda: puzzles.training(n_few, 4 if quick else 16)),
        ("clamps", "clamps in training", lambda: clamps.steps(n_few)),
        ("markov", "sequences of Markov chains", lambda: markov.generation(n_few)),
        ("markov", "steps on Markov chains", lambda: markov.training(n_few)),
        ("equality", "equality of logits", steps.equality),
        ("processes", "worker processes", lambda: seeds.processes(1, 100 if quick else seeds.QUICK_STEPS)),
        ("cluster", "a Dask cluster", lambda: cluster.against_processes(1 if quick else 3, 60 if quick else 500)),
        ("cluster", "tasks of a Dask cluster", lambda: cluster.tasks(500 if quick else 10_000)),
        ("memory", "memory", lambda: seeds.memory(100 if quick else 500)),
        *(
            ("together", "seeds as one program", lambda d=d, n=n: seeds.together(n_few, d, n, 16 if quick else 64))
            for d, n in devices.items()
        ),
        *(("together", "equality of parameters", lambda d=d: seeds.same_parameters(d, n_apart)) for d in devices),
        ("patching", "activation patching", lambda: patching.sweeps(quick)),
        ("language", "language models", lambda: language.sweeps(quick)),
        ("language", "retrieval prompts", lambda: prompts.scoring(quick)),
        ("plain", "plain PyTorch", lambda: plain.sweeps(quick)),
        ("attribution", "edge attribution", lambda: attribution.sweeps(quick)),
        ("edges", "path patching", lambda: edges.sweeps(quick)),
        ("paths", "attention paths", lambda: paths.sweeps(quick)),
        ("features", "features of a dictionary", lambda: features.sweeps(quick)),
        ("capacity", "capacity of matrices", lambda: capacity.search(1 if quick else 3, quick=quick)),
        ("explorer", "the explorer in Chromium", lambda: explorer.repaints(quick)),
    ]
    return ((title, work) for row, title, work in everything if row in only)


def _table(figures: "list[Figure]") -> "Table":
    from rich.table import Table

    table = Table("measured", "rivals", "median", "quartiles", "aim", "reached", "note", title="mnemoscope benchmarks")
    for column in table.columns[2:4]:
        column.justify, column.no_wrap = "right", True
    previous = None
    for figure in figures:
        if previous not in (None, figure.group):
            table.add_section()
        sign = "<=" if figure.at_most else ">="
        table.add_row(
            figure.group if figure.group != previous else "",
            figure.name,
            "-" if figure.value is None else f"{figure.value:.3g} {figure.unit}",
            "" if figure.spread is None else f"{figure.spread[0]:.3g} - {figure.spread[1]:.3g}",
            "" if figure.aim is None else f"{sign} {figure.aim:g} {figure.unit}",
            {True: "yes", False: "no", None: ""}[figure.reached],
            figure.note,
        )
        previous = figure.group
    return table


def _plain(figure: "Figure") -> dict[str, object]:
    return {**asdict(figure), "reached": figure.reached}


def _machine() -> dict[str, object]:
    import os
    import platform
    from importlib.metadata import version

    import torch

    return {
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformer-lens", "mnemoscope")},
    }


if __name__ == "__main__":
    main()
