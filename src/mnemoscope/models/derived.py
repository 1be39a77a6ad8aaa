"""Digests of the files of a run that derive from its training, so that an edit of one is noticed by name.

When training ends, run.json gets an entry `digests`: SHA-256 of metrics.jsonl, of trajectory.json once there is one,
and, under `run.json`, of everything else in that file but its command. trajectory.json holds the digests of the weights
that it was measured on. A run of the zoo, or a copy of one with the same last checkpoint, is compared with its archive,
whose own digest is checked when it is opened. Runs from before digests were written are unverified.

*Does not show* an edit by somebody who writes the digests anew: `mnemoscope claims verify` measures and trains again.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from zipfile import ZipFile

from mnemoscope.core.errors import InputError, format_ranges
from mnemoscope.models.checkpoint import weights_digest
from mnemoscope.models.files import write_atomically
from mnemoscope.models.glance import checkpoint_steps, read_run_file
from mnemoscope.models.zoo import archive_file, read_archive

RECORD, METRICS, TRAJECTORY = "run.json", "metrics.jsonl", "trajectory.json"
_ENTRY = "digests"
_WEIGHTS = "weights"
_NOT_COVERED = ("command", "guest")
"""Entries of run.json with paths of the machine, which packing shortens."""


def with_digests(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of run.json with the digests of the files beside it and of its own."""
    kept = {name: value for name, value in content.items() if name != _ENTRY}
    beside = {name: _sha256((path / name).read_bytes()) for name in (METRICS, TRAJECTORY) if (path / name).is_file()}
    return {**kept, _ENTRY: {RECORD: _record_digest(kept), **beside}}


def write_derived(path: Path, name: str, content: bytes) -> None:
    """Write a file that derives from a run, and its digest into run.json if that holds some."""
    write_atomically(path / name, content)
    record = read_run_file(path)
    if _ENTRY in record:
        write_atomically(path / RECORD, (json.dumps(with_digests(path, record), indent=2) + "\n").encode())


def _record_digest(content: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in content.items() if name not in _NOT_COVERED}
    return _sha256(json.dumps(kept, sort_keys=True).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, kw_only=True)
class FileCheck:
    """The files of one run beside their digests: `same`, `unverified` where there are none, or `edited`.

    `problem` names the first file that was edited, in one line.
    """

    path: Path
    seed: int
    state: Literal["same", "unverified", "edited"]
    problem: str = ""


def check_files(path: Path, label: str, seed: int, *, trajectory_weights: bool = False) -> FileCheck:
    """Compare run.json, metrics.jsonl and trajectory.json of a run directory with their digests, or with the archive.

    `trajectory_weights` also reads every checkpoint whose weights trajectory.json names. `label` is that of the run.
    """
    content = read_run_file(path)
    written = content.get(_ENTRY)
    packed = _packed_files(path, label)
    if written is None and packed is None:
        return FileCheck(path=path, seed=seed, state="unverified")
    found = []
    if packed is not None:
        found = [name for name, data in packed.items() if not _holds(path / name, data)]
    if not found and isinstance(written, Mapping):
        found = _edited(path, content, written)
    if not found and trajectory_weights and _differs_from_weights(path):
        found = [TRAJECTORY]
    if not found:
        return FileCheck(path=path, seed=seed, state="same")
    against = "its archive" if packed is not None else "its digest in run.json"
    problem = f"{path / found[0]} was edited after it was written: it differs from {against}; {_WAY_OUT[found[0]]}"
    return FileCheck(path=path, seed=seed, state="edited", problem=problem)


_WAY_OUT = {
    RECORD: "restore it or train the run again",
    METRICS: "restore it or train the run again",
    TRAJECTORY: "restore it or measure it again with `mnemoscope evaluate --checkpoints`",
}


def _edited(path: Path, content: Mapping[str, Any], written: Mapping[str, str]) -> list[str]:
    """The files whose digests are not those in run.json."""
    now = with_digests(path, content)[_ENTRY]
    return [name for name in (RECORD, METRICS, TRAJECTORY) if now.get(name) != written.get(name)]


def _holds(file: Path, content: bytes) -> bool:
    return file.is_file() and file.read_bytes() == content


def _packed_files(path: Path, label: str) -> dict[str, bytes] | None:
    """Files in the archive for a run of the zoo, or for a copy with the same last checkpoint; None for other runs."""
    unpacked = path.parent.parent.parent.name == "zoo"
    file = archive_file(path.parent.name if unpacked else label)
    if file is None:
        return None
    digest, members = _archive(file, file.stat().st_mtime_ns)
    names = set(members.namelist())
    if unpacked and path.parent.parent.name != digest[:16]:
        return None
    if not unpacked:
        last = f"checkpoints/{max(checkpoint_steps(path), default=0):08d}"
        packed = next((name for name in names if name.startswith(f"{path.name}/{last}.")), None)
        if packed is None or not _holds(path / packed.partition("/")[2], members.read(packed)):
            return None
    return {name: members.read(f"{path.name}/{name}") for name in _WAY_OUT if f"{path.name}/{name}" in names}


@lru_cache(maxsize=4)
def _archive(file: Path, _: int) -> tuple[str, ZipFile]:
    """An archive with its digest, read once for all of its runs."""
    found = read_archive(file)
    return found.digest, found.open()


def _differs_from_weights(path: Path) -> bool:
    """True if trajectory.json names other weights than those of whole checkpoints that are there."""
    file = path / TRAJECTORY
    try:
        named = json.loads(file.read_text(encoding="utf-8")).get(_WEIGHTS, {}) if file.is_file() else {}
    except ValueError:
        return True
    places = {step: path / "checkpoints" / f"{int(step):08d}.safetensors" for step in named}
    return any(weights_digest(place)[1] != named[step] for step, place in places.items() if place.is_file())


def refuse_edited(checks: Iterable[FileCheck]) -> None:
    """Raise InputError in one line where a file of a run was edited."""
    wrong = [each for each in checks if each.state == "edited"]
    if wrong:
        others = f" (so are files of seeds {format_ranges([each.seed for each in wrong[1:]])})" if wrong[1:] else ""
        raise InputError(wrong[0].problem + others)
