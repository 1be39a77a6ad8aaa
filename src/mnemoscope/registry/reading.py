"""Registries: the entries of installed packages, of files and of directories."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from mnemoscope.claims.entry import FOLDER, Entry, packaged_entries, read_entry
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.errors import InputError


@check_arguments
def read_registry(paths: Sequence[str | Path] | None = None) -> dict[str, Entry]:
    """Entries by their ids, such as `mnemo:my-system/X1@1`.

    Args:
        paths: Files of entries, and directories that hold some at any depth; None: those of all installed packages.

    Raises:
        InputError: A path does not exist, holds no entry, or an id occurs twice.

    >>> entries = ms.registry.read_registry()
    >>> entry = next(entry for entry in entries.values() if entry.short_id == "T14")
    >>> entry.verdict.outcome
    'REFUTED'
    """
    given = packaged_entries() if paths is None else ((file, read_entry(file)) for file in entry_files(paths))
    found: dict[str, tuple[Path, Entry]] = {}
    for file, entry in given:
        if entry.id in found:
            raise InputError(f"{entry.id} occurs twice, in {found[entry.id][0]} and in {file}; keep one")
        found[entry.id] = (file, entry)
    return {id: entry for id, (_, entry) in found.items()}


def entry_files(paths: Sequence[str | Path]) -> Iterator[Path]:
    """The files that hold entries: those named, and of directories the `.json` files below, in order of their names.

    Where folders `registry` lie below a directory, as in packages, only files in these count.

    Raises InputError where a path does not exist, or a directory holds no such file.
    """
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"{path} does not exist; name a file of an entry, or a directory that holds some")
        if not path.is_dir():
            yield path
            continue
        files = sorted(path.rglob(f"{FOLDER}/*.json")) or sorted(path.rglob("*.json"))
        if not files:
            raise InputError(f"{path} holds no entries, which are .json files; `mnemoscope claims export` writes some")
        yield from sorted(files, key=lambda file: (file.parent, len(file.stem), file.stem))
