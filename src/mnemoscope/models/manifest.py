"""The manifest of a folder of archives: what each archive and each of its runs is, in one text file beside them.

`manifest.json` has a line per archive with its SHA-256, and one per run. That holds digests of the initial weights, the
first batches and the final weights in the archive, and what a replay of the first steps agreed with. An archive that
differs from its line is refused when it is opened; runs are compared with theirs before claims count them.

*Does not show* anything of archives without a line, such as those that another package brings.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mnemoscope.core.errors import InputError
from mnemoscope.models.files import write_atomically

FILE = "manifest.json"
"""The name of the manifest."""


@dataclass(frozen=True, kw_only=True)
class ManifestEntry:
    """The digest of an archive, the machine that computed those of its runs, and these by seed.

    Of each run they are called `initial_weights`, `first_batches`, `final_weights` and, in words, `replay`.
    """

    sha256: str
    machine: str
    runs: Mapping[int, Mapping[str, str]]


def read_manifest(folder: Path) -> dict[str, ManifestEntry]:
    """The manifest of a folder by configuration; empty where there is none. InputError where it is damaged."""
    file = folder / FILE
    try:
        return _read(file, file.stat().st_mtime_ns)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file} is damaged: {error!r}; install mnemoscope again") from None


@lru_cache(maxsize=16)
def _read(file: Path, _: int) -> dict[str, ManifestEntry]:
    entries: dict[str, ManifestEntry] = {}
    runs: dict[str, dict[int, Mapping[str, str]]] = {}
    for line in json.loads(file.read_text(encoding="utf-8")):
        label = line.pop("archive")
        if "seed" in line:
            runs[label][line.pop("seed")] = line
        else:
            entries[label] = ManifestEntry(**line, runs=runs.setdefault(label, {}))
    return entries


def write_manifest(folder: Path, entries: Mapping[str, ManifestEntry]) -> None:
    """Write the manifest of a folder, by configuration and seed, with a line for each."""
    lines = []
    for label, entry in sorted(entries.items()):
        lines.append({"archive": label, "sha256": entry.sha256, "machine": entry.machine})
        lines += [{"archive": label, "seed": seed, **entry.runs[seed]} for seed in sorted(entry.runs)]
    text = ",\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    write_atomically(folder / FILE, f"[\n{text}\n]\n".encode())


def drop_entry(folder: Path, label: str) -> None:
    """Take an archive that is packed anew out of the manifest, if it is in it."""
    entries = read_manifest(folder)
    if label in entries:
        write_manifest(folder, {name: entry for name, entry in entries.items() if name != label})
