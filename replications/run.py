"""Measure headline claims again and compare with what the package has on record.

    python replications/run.py [ID ...]

Without IDs all claims are measured. Results are printed and written to `results.json` beside this file; with IDs the
lines of other claims stay.
"""

import argparse
import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import factual_recall
import in_context_bigrams
import modular_addition
import puzzles
import tiny_recall
import vectors
from archives import SYSTEMS
from judging import Replication, decide, n_clear

HERE = Path(__file__).parent
MODULES = (tiny_recall, in_context_bigrams, vectors, factual_recall, modular_addition, puzzles)
REPLICATIONS = {each.claim: each for module in MODULES for each in module.REPLICATIONS}
FILES = {each.claim: f"replications/{module.__name__}.py" for module in MODULES for each in module.REPLICATIONS}
BY = "the mnemoscope developers, with hooks of TransformerLens and plain PyTorch"
"""Author of the replications, for the registry."""


def read(name: str) -> Any:
    """A JSON file of this folder; an empty table where there is none yet."""
    file = HERE / name
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def verdict_on_record(replication: Replication) -> dict[str, Any]:
    """Outcome, `n_clear` and `n` as the registry of the package has them."""
    entry = json.loads(
        (SYSTEMS / replication.system / f"registry/{replication.claim}.json").read_text(encoding="utf-8")
    )
    return next(verdict for verdict in reversed(entry["verdicts"]) if verdict["superseded"] is None)


def replicate(claim: str) -> dict[str, Any]:
    """Measure one claim on all its seeds and compare: the line of `results.json`.

    It agrees if the outcome is the same, the numbers of seeds differ by no more than the tolerance, and so do the mean
    effects that are known.
    """
    replication, tolerance = REPLICATIONS[claim], read("tolerances.json")[claim]
    measured = [replication.measure(seed) for seed in replication.seeds()]
    counted = [effects for effects in measured if replication.passes(effects)]
    outcome, clear = decide(replication.criteria, counted), n_clear(replication.criteria, counted)
    names = [part.effect for part in replication.criteria]
    effects = {name: sum(each[name] for each in counted) / max(1, len(counted)) for name in names}
    record, known = verdict_on_record(replication), read("measured_by_package.json").get(claim, {})
    notes = []
    if outcome != record["outcome"]:
        notes.append(f"the outcome on record is {record['outcome']}")
    for what, found in (("n_clear", clear), ("n", len(counted))):
        if abs(found - record[what]) > tolerance["seeds"]:
            notes.append(f"{what} on record is {record[what]}")
    for name in sorted(known.keys() & effects.keys()):
        if not abs(effects[name] - known[name]) <= tolerance["effects"][name]:
            notes += [f"the package has {known[name]:.4g} for {name}"]
    return {
        "claim": claim,
        "by": BY,
        "code": FILES[claim],
        "outcome": outcome,
        "n_clear": clear,
        "n": len(counted),
        "effects": {name: round(value, 6) for name, value in effects.items()},
        "tolerance": describe(tolerance),
        "agrees": not notes,
        "note": "; ".join(notes),
        "date": date.today().isoformat(),
    }


def describe(tolerance: dict[str, Any]) -> str:
    """A tolerance in one sentence."""
    within = ", ".join(f"{name} by {value:g}" for name, value in tolerance["effects"].items())
    return f"seeds may differ by {tolerance['seeds']}, {within}: {tolerance['reason']}"


def show(lines: Sequence[dict[str, Any]]) -> None:
    """Print the results as a table: a row for each effect."""
    table = Table("claim", "outcome", "seeds", "on record", "effect", "mean", "package", "agrees")
    measured = read("measured_by_package.json")
    for line in lines:
        record, known = verdict_on_record(REPLICATIONS[line["claim"]]), measured.get(line["claim"], {})
        seen = f"{record['outcome']} {record['n_clear']} of {record['n']}"
        agrees = "yes" if line["agrees"] else f"no: {line['note']}"
        whole = (line["claim"], line["outcome"], f"{line['n_clear']} of {line['n']}", seen)
        for i, (name, value) in enumerate(line["effects"].items()):
            package = f"{known[name]:.4f}" if name in known else ""
            table.add_row(
                *(cell if i == 0 else "" for cell in whole), name, f"{value:.4f}", package, "" if i else agrees
            )
    Console().print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the claims that are named, or all."""
    parser = argparse.ArgumentParser(description="Measure headline claims again with independent code.")
    parser.add_argument("claims", nargs="*", metavar="ID", help=f"of {', '.join(REPLICATIONS)}; none: all")
    chosen = parser.parse_args(arguments).claims or list(REPLICATIONS)
    if unknown := [claim for claim in chosen if claim not in REPLICATIONS]:
        parser.error(f"{unknown[0]} has no replication; those that have one are {', '.join(REPLICATIONS)}")
    torch.set_num_threads(1)
    lines = [replicate(claim) for claim in chosen]
    show(lines)
    kept = {line["claim"]: line for line in (read("results.json") or [])} | {line["claim"]: line for line in lines}
    ordered = [kept[claim] for claim in REPLICATIONS if claim in kept]
    text = json.dumps(ordered, indent=1, ensure_ascii=False)
    (HERE / "results.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
