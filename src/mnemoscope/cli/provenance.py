"""The base of a verdict, as pieces of HTML for its page: the command, the code, the runs and the arrays.

Code is named by module and line. It is linked to the source that its package names in its metadata (`Project-URL`), or
to the file if that lies below the current directory, as in a clone. Runs on this machine are linked; those of the zoo
have their word, such as `zoo:v3-quick`.
"""

import inspect
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mnemoscope.claims.claim import Claim
from mnemoscope.claims.functions import name_of
from mnemoscope.claims.replicates import AdmittedRuns
from mnemoscope.claims.ruling import Ruling
from mnemoscope.core.errors import format_ranges
from mnemoscope.core.html import macros
from mnemoscope.models import zoo
from mnemoscope.report.overview import link

_REPOSITORY = ("source", "source code", "repository", "code", "github")
"""Names that packages give to the address of their source, in lower case."""


@dataclass(frozen=True, kw_only=True)
class CodeLocation:
    """A line of a module."""

    module: str
    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.module}, line {self.line}"


def provenance_html(ruling: Ruling, admitted: AdmittedRuns, where: Sequence[str], out: Path) -> list[str]:
    """HTML on a ruling: command, code, runs and arrays; `where` has the words for its models, `out` is the page's
    directory.
    """
    claim, shown = ruling.claim, macros("cli/provenance.html.jinja")
    command = shlex.join(["mnemoscope", "claims", "run", claim.id, *(where if claim.replicate != "draw" else ())])
    units = _runs(claim, admitted, out)
    found = [
        shown.command(command),
        *(shown.code(what, name, str(place), _line_address(place, out)) for what, name, place in _code(claim)),
        *([shown.runs(units)] if units else []),
        *([shown.models(ruling.evidence.models)] if ruling.evidence.models else []),
        shown.arrays(quote(f"evidence/{claim.id}.nc")),
    ]
    return [str(piece) for piece in found]


# ---- code


def _code(claim: Claim) -> Iterator[tuple[str, str, CodeLocation]]:
    """In words what is there, its name, and its place."""
    if (place := locate_claim(claim)) is not None:
        yield "The claim", "", place
    if claim.measure is not None and (place := locate_function(claim.measure)) is not None:
        yield "The measure", name_of(claim.measure), place


def locate_function(function: Callable[..., Any]) -> CodeLocation | None:
    """The definition of a function, or of the one that a partial function calls. None: it has no source."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    try:
        file, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    except (OSError, TypeError):  # what was typed at a prompt, or is not written in Python
        return None
    return None if file is None else CodeLocation(module=function.__module__, file=Path(file), line=line)


def locate_claim(claim: Claim) -> CodeLocation | None:
    """The line that states a claim, in the modules beside its measure that hold it. None: there is none.

    It is the line with its id, or, if the id is put together, the one that gives the claim its name in the module.
    """
    if claim.measure is None or (near := locate_function(claim.measure)) is None:
        return None
    system = near.module.rpartition(".")[0].partition(".claims")[0]
    around = [name for name in sorted(sys.modules) if system and name.startswith(f"{system}.")]
    for name in dict.fromkeys([near.module, *around]):
        module = sys.modules.get(name)
        called = [] if module is None else _names(module, claim)
        if module is None or not called or (file := inspect.getsourcefile(module)) is None:
            continue
        lines = Path(file).read_text(encoding="utf-8").splitlines()
        for pattern in (rf"[\"']{re.escape(claim.id)}[\"']", rf"^(?:{'|'.join(map(re.escape, called))})\b"):
            if found := [number for number, line in enumerate(lines, 1) if re.search(pattern, line)]:
                return CodeLocation(module=name, file=Path(file), line=found[0])
    return None


def _names(module: Any, claim: Claim) -> list[str]:
    """The name of a claim in a module, or of the sequence that it is in."""

    def is_it(value: object) -> bool:
        return isinstance(value, Claim) and value.id == claim.id

    return [
        name
        for name, value in vars(module).items()
        if is_it(value) or (isinstance(value, tuple | list) and any(map(is_it, value)))
    ]


def _line_address(place: CodeLocation, out: Path) -> str | None:
    """The address of a line for a reader; None where it is not known."""
    root = _root(place.file)
    if root is not None and (repository := _repository(place.module.partition(".")[0])) is not None:
        path = place.file.resolve().relative_to(root).as_posix()
        return f"{repository}/blob/HEAD/{quote(path)}#L{place.line}"
    if place.file.resolve().is_relative_to(Path.cwd().resolve()):
        return f"{link(place.file, out)}#L{place.line}"
    return None


def _root(file: Path) -> Path | None:
    """The directory of the project that a file lies in; None where it is installed apart from it."""
    return next((parent for parent in file.resolve().parents if (parent / "pyproject.toml").is_file()), None)


def _repository(package: str) -> str | None:
    """The address of the source of an installed package, by its metadata."""
    for name in _distributions().get(package, ()):
        for entry in metadata.metadata(name).get_all("Project-URL") or ():
            label, _, address = entry.partition(",")
            if label.strip().lower() in _REPOSITORY:
                return address.strip().rstrip("/").removesuffix(".git")
    return None


@cache
def _distributions() -> Mapping[str, Sequence[str]]:
    """The distributions that hold each package; it takes a look into each that is installed."""
    return metadata.packages_distributions()


# ---- runs


def _runs(claim: Claim, admitted: AdmittedRuns, out: Path) -> list[tuple[str, str, str, list[tuple[int, str]]]]:
    """Configurations: label, word and seeds of runs of the zoo, and seeds of other runs with their addresses."""
    seeds = admitted.seeds(claim)
    found = []
    for unit in claim.units.values() if seeds else ():
        runs = {seed: admitted.finished[unit][seed] for seed in seeds}
        label = next(iter(runs.values())).label
        unpacked = {place for place in {run.path.parent for run in runs.values()} if zoo.is_unpacked(place)}
        packed = [seed for seed, run in runs.items() if run.path.parent in unpacked]
        others = [(seed, link(run.path, out)) for seed, run in runs.items() if seed not in packed]
        found.append((label, f"{zoo.WORD}:{label}", format_ranges(packed) if packed else "", others))
    return found
