"""Pages, arrays and tables that commands have left in a directory, and the configuration of each."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from mnemoscope.report.page import title_of

KINDS = {".html": "page", ".nc": "array", ".csv": "table"}


@dataclass(frozen=True, kw_only=True)
class File:
    """A page, an array or a table."""

    path: Path
    kind: str
    title: str
    """The title of a page; empty for other files."""
    label: str
    """Its configuration; empty where there are several, or none is known."""


def under(directory: Path, labels: Iterable[str]) -> list[File]:
    """The files at or below a directory, by path; hidden folders and run directories are left out.

    A file below a folder with one of the `labels` as its name belongs to that configuration.
    """
    known = set(labels)
    return [_file(path, known) for path in _walk(directory)]


def beside(directory: Path, labels: Iterable[str]) -> list[File]:
    """The files next to a directory: our pages, and what commands have left about one of the configurations."""
    directory, known = directory.resolve(), set(labels)
    folders = [] if directory.parent == directory else _listed(directory.parent)
    found = [path for path in folders if path.suffix == ".html" and title_of(path) is not None]
    for folder in folders:
        if folder != directory and not folder.name.startswith("."):
            found += [path for label in sorted(known) if (folder / label).is_dir() for path in _walk(folder / label)]
    return [_file(path, known) for path in found]


def link(path: Path, start: Path) -> str:
    """The address of a file or directory relative to the directory of a page."""
    return quote(os.fsencode(relative(path, start)))


def relative(path: Path, start: Path) -> str:
    """A path relative to a directory, with slashes."""
    return Path(os.path.relpath(path.absolute(), start.absolute())).as_posix()


def _file(path: Path, labels: set[str]) -> File:
    kind = KINDS[path.suffix]
    title = title_of(path) or "" if kind == "page" else ""
    label = next((part for part in reversed(path.parts[:-1]) if part in labels), "")
    return File(path=path, kind=kind, title=title, label=label)


def _walk(directory: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(directory):
        here = Path(place)
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and not (here / name / "run.json").exists()
        )
        yield from (here / name for name in sorted(names) if Path(name).suffix in KINDS and not name.startswith("."))


def _listed(directory: Path) -> Sequence[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []
