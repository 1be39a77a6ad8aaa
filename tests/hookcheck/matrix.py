"""Makes the page of laws, backends and architectures: `.venv/bin/python -m tests.hookcheck.matrix --with PYTHON ...`.

Every interpreter measures the backends that it has: TransformerLens 3 or 4, and nnsight where it is installed. Results
are kept in `hookcheck_matrix.json`; only cells that are measured are replaced. `--only NAME ...` measures some
architectures. The rest of the page is written by hand.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import mnemoscope as ms
from mnemoscope.hookcheck.laws import LAWS
from mnemoscope.interventions.subject import make_subject
from mnemoscope.models import from_nnsight, from_transformers
from mnemoscope.models.lens import HAS_HOOKED_TRANSFORMER
from tests.architectures import ARCHITECTURES, architecture
from tests.language_models import tokenizer

ROOT = Path(__file__).parents[2]
RECORDED, PAGE = (ROOT / "docs" / f"hookcheck_matrix.{end}" for end in ("json", "md"))
LINE = 3 if HAS_HOOKED_TRANSFORMER else 4
_MARKS = ("% made by tests/hookcheck/matrix.py", "% end")
Cell = Mapping[str, Any]


def _loaded(load: Callable[[Path], Any]) -> Callable[[Any], Any]:
    """A way to load the model from a directory, as users do."""

    def make(theirs: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            theirs.save_pretrained(folder)
            tokenizer().save_pretrained(folder)
            return load(Path(folder)).requires_grad_(False)

    return make


def _native(theirs: Any) -> Any:
    from tests.bridge import as_bridge

    if type(theirs).__name__ != "GPT2LMHeadModel":
        raise ValueError("native models have LayerNorm, learned positions and a plain MLP")
    return as_bridge(_loaded(ms.language_model)(theirs).requires_grad_(True)).requires_grad_(False)


def _nnsight(theirs: Any) -> Any:
    from nnsight import NNsight  # pyright: ignore

    return from_nnsight(NNsight(theirs))


def backends() -> dict[str, Callable[[Any], Any]]:
    """By name, functions from a model of the transformers library to a hooked model, as far as they run here."""
    whose = "TransformerLens 3" if LINE == 3 else "ours"
    found: dict[str, Callable[[Any], Any]] = {
        f"HookedTransformer, {whose}": _loaded(ms.language_model),
        f"TransformerBridge {LINE}": _loaded(ms.models.bridged_language_model),
        f"native TransformerBridge {LINE}": _native,
    }
    if LINE == 3:
        found["plain module, adapted"] = from_transformers
        if find_spec("nnsight"):
            found["nnsight, adapted"] = _nnsight
    return found


@mock.patch.dict(os.environ, MNEMOSCOPE_CACHE="")  # nothing is kept
def measure_cell(make: Callable[[Any], Any], name: str) -> Cell:
    """The findings of all laws about one architecture by one backend."""
    theirs = deepcopy(architecture(name))
    try:
        model = make(theirs)
        subject = make_subject(model)
        subject.run(reads=())
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = re.sub(r"^source \S+: ", "", lines[0]).partition(" (")[0].partition(": ")[0]
        return {"none": re.sub(r"\ba \w+ForCausalLM", "it", reason)[:160]}
    found = {law.name: law.examine(subject) for law in LAWS.values()}
    return {
        "holds": sum(finding.outcome == "holds" for finding in found.values()),
        "broken": {
            law: [float(f"{finding.amount:.2g}"), *finding.points[:2]]
            for law, finding in found.items()
            if finding.outcome == "broken"
        },
        "refused": {law: finding.reason[:160] for law, finding in found.items() if finding.outcome == "refused"},
    }


def measure(names: Iterable[str], chosen: Iterable[str] | None = None) -> dict[str, dict[str, Cell]]:
    """Cells by backend and architecture, as far as they can be measured with this interpreter."""
    found: dict[str, dict[str, Cell]] = {}
    for backend, make in backends().items():
        if chosen is None or backend in chosen:
            found[backend] = {}
            for name in names:
                start = time.perf_counter()
                found[backend][name] = measure_cell(make, name)
                print(f"{backend}: {name} ({time.perf_counter() - start:.0f} s)", file=sys.stderr, flush=True)
    return found


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if "none" in cell:
        return "–"
    broken, refused = len(cell["broken"]), len(cell["refused"])
    return f"{cell['holds']}" + (f" · **{broken}**" if broken else " · 0") + (f" · {refused}" if refused else "")


def _listed(cells: Mapping[str, Cell]) -> list[str]:
    """A table of the laws that are broken, with the architectures, and of the reasons of those that are not there."""
    by_law: dict[str, list[str]] = {}
    for name, cell in cells.items():
        for law, (amount, *points) in cell.get("broken", {}).items():
            by_law.setdefault(f"*{law}*", []).append(f"{name} ({amount:.2g} at `{points[0]}`)")
        if "none" in cell:
            by_law.setdefault(f"no model: {cell['none']}", []).append(name)
    rows = [f"| {law} | {', '.join(names)} |" for law, names in by_law.items()]
    header = ["| broken law, or why there is no model | architectures |", "| --- | --- |"]
    return [*header, *rows] if rows else ["No law is broken."]


SHORT = {
    "HookedTransformer, TransformerLens 3": "HT 3",
    "TransformerBridge 3": "TB 3",
    "native TransformerBridge 3": "native 3",
    "plain module, adapted": "plain",
    "nnsight, adapted": "nnsight",
    "HookedTransformer, ours": "HT ours",
    "TransformerBridge 4": "TB 4",
    "native TransformerBridge 4": "native 4",
}
"""Headings that leave room for all backends side by side."""


def page(results: Mapping[str, Mapping[str, Cell]], before: str) -> str:
    """The page, with the part between its two marks made from recorded results."""
    rows = [
        f"| {name} | " + " | ".join(_shown(cells.get(name)) for cells in results.values()) + " |"
        for name in ARCHITECTURES
    ]
    sections = [f"### {backend}\n\n" + "\n".join(_listed(cells)) for backend, cells in results.items()]
    table = [
        "| architecture | " + " | ".join(SHORT[name] for name in results) + " |",
        "| --- |" + " --- |" * len(results),
        *rows,
    ]
    made = "\n".join([*table, "", "## Broken laws", "", "\n\n".join(sections)])
    start, end = before.partition(_MARKS[0]), before.partition(_MARKS[1])
    return f"{start[0]}{_MARKS[0]}\n\n{made}\n\n{_MARKS[1]}{end[2]}"


def main() -> None:
    """Measure, record and write the page."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--with", dest="others", nargs="*", default=[], help="interpreters with other backends")
    options.add_argument("--only", nargs="*", default=[*ARCHITECTURES], help="architectures")
    options.add_argument("--backends", nargs="*", default=None, help="backends; none: all that run")
    options.add_argument("--results", action="store_true", help="print the results of this interpreter, write nothing")
    given = options.parse_args()
    if given.results:
        print(json.dumps(measure(given.only, given.backends)))
        return
    recorded = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    chosen = [] if given.backends is None else ["--backends", *given.backends]
    for interpreter in (sys.executable, *given.others):
        command = [interpreter, "-m", "tests.hookcheck.matrix", "--results", "--only", *given.only, *chosen]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        for backend, cells in json.loads(output.splitlines()[-1]).items():
            recorded[backend] = {**recorded.get(backend, {}), **cells}
    RECORDED.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(recorded, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
