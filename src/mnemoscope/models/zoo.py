"""The zoo: trained runs that are installed, one archive per configuration, unpacked on first use.

Archives lie in the packages of systems, and in packages that distributions of data name under the entry point group
`mnemoscope.zoo`: a few come with mnemoscope, the others with `pip install "mnemoscope[zoo]"`.

`zoo` names all of them, `zoo:<configuration>` those of one configuration and `zoo:<configuration>/seed-16` one run.
They are unpacked into a directory of the user, so that they are read like any other run directory.

An archive is a zip file whose comment is the SHA-256 of all bytes before it: a damaged one is refused before anything
in it is read. Files are moved into place when complete, and one that is missing or cut short is written again. So it
does no harm when two processes unpack at once, when one of them is killed, or when somebody tidies up the directory.
"""

import hashlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

from mnemoscope.core.errors import InputError, one_of, suggest_nearest
from mnemoscope.core.guests import guest_directory, guest_of, guests, location
from mnemoscope.models.files import user_cache, write_atomically
from mnemoscope.models.manifest import FILE, read_manifest

if TYPE_CHECKING:
    from mnemoscope.core.specification import RunSpec  # takes torch along

WORD = "zoo"
"""The word for the zoo where a run directory is expected."""
FOLDER = "zoo"
"""The folder of a system's package where its archives lie."""
GROUP = "mnemoscope.zoo"
"""Entry points of this group name packages that hold archives."""
INSTALL = 'pip install "mnemoscope[zoo]"'
"""The command that brings the archives of mnemoscope's own systems."""
_OURS = Path(__file__).parents[1] / "systems" / "zoo.json"
"""Names of all configurations of mnemoscope's own systems: what is not installed is known without an import."""
SEAL = 64
"""Length of the digest at the end of an archive."""

_NAME = re.compile(
    r"(seed-\d{2,})/(?:(?:run|trajectory)\.json|metrics\.jsonl|done|checkpoints/(\d{8})(?:\.compact)?\.safetensors)"
)
_DIGEST = re.compile(r"(.+\+[0-9a-f]{6})-(.+)")


@dataclass(frozen=True, kw_only=True)
class Archive:
    """The runs of one configuration, packed."""

    label: str
    digest: str
    content: bytes = field(repr=False)

    @property
    def steps(self) -> dict[str, tuple[int, ...]]:
        """The steps of each run's checkpoints, ascending; runs are such as `seed-16`."""
        steps: dict[str, list[int]] = {}
        for name in self.open().namelist():
            if (parts := _NAME.fullmatch(name)) and parts[2]:
                steps.setdefault(parts[1], []).append(int(parts[2]))
        return {run: tuple(sorted(found)) for run, found in steps.items()}

    def open(self) -> ZipFile:
        """The archive, to be read from."""
        return ZipFile(io.BytesIO(self.content))


def seal(content: bytes) -> bytes:
    """The end of an archive: the SHA-256 of what comes before, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest().encode()


def labels() -> list[str]:
    """The configurations in the zoo; raises InputError where there are none."""
    names = sorted(_files())
    if not names:
        raise InputError("no trained runs come with the installed systems; `mnemoscope train` makes some")
    return names


def folder(module: str) -> Path:
    """The folder for the archives of the system that a module belongs to; refused where that is no package."""
    guest = guest_of(module)
    package = None if guest is None else guest_directory(guest)
    if package is None:
        raise InputError(f"{module} is part of no system that is a package, where archives could lie; give --out")
    return package / FOLDER


def folders() -> list[Path]:
    """The possible places of archives: packages that distributions name, and a folder of every system's package."""
    packages = [package for guest in guests() if (package := location(guest)) is not None]
    return [*_distributions(), *(package / FOLDER for package in packages)]


def _distributions() -> list[Path]:
    """The packages with archives that installed distributions name."""
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return [place for point in points if (place := location(point.value)) is not None]


def runs_to_pack(system: str) -> "Mapping[str, Mapping[int, RunSpec]]":
    """The runs behind the verdicts on a system that are packed, by label and seed."""
    from mnemoscope.core.presets import SYSTEMS, label_of

    plan: dict[str, dict[int, RunSpec]] = {}
    for part in SYSTEMS.get(system).judged:
        for spec in part.specs() if part.packed else ():
            plan.setdefault(label_of(spec), {})[spec.seed] = spec
    return plan


def missing() -> list[str]:
    """The configurations behind the verdicts on mnemoscope's own systems that are not installed."""
    return sorted(set(json.loads(_OURS.read_text(encoding="utf-8"))) - _files().keys())


def is_label(name: str) -> bool:
    """True if a configuration of the zoo has this name, installed or not."""
    return name in _files() or name in missing()


def not_installed() -> str | None:
    """One sentence where no distribution of trained runs is installed, with the command that brings them."""
    absent = () if _distributions() else missing()
    if not absent:
        return None
    there = ", ".join(f"{WORD}:{label}" for label in sorted(_files())) or "none"
    return (
        f"{WORD} stands for all trained runs, of which {len(absent)} configurations are not installed; "
        f"{INSTALL} brings them (installed: {there})"
    )


def _files() -> dict[str, Path]:
    """The archives of all systems by configuration."""
    files = [file for place in folders() for file in sorted(place.glob("*.zip"))]
    return {file.name.removesuffix(".zip"): file for file in files}


def archive_file(label: str) -> Path | None:
    """The place of the archive of a configuration; None where none is installed."""
    return _files().get(label)


def archive(label: str) -> Archive:
    """The archive of a configuration; raises as `read_archive` does."""
    return read_archive(_file(label))


def _file(label: str) -> Path:
    """The file of a configuration's archive; an earlier label, with a digest of changes, will do too."""
    files = _files()
    if label not in files and (parts := _DIGEST.fullmatch(label)):
        from mnemoscope.core.presets import names_with_words

        label = f"{names_with_words().get(parts[1], parts[1])}-{parts[2]}"
    if label not in files and label in missing():
        raise InputError(f"{WORD}:{label} is not installed; {INSTALL} brings it")
    if label not in files and (absent := missing()):
        known = f"{', '.join(labels())}, or of {len(absent)} that {INSTALL} brings"
        nearest = suggest_nearest(label, [*files, *absent])
        raise InputError(f"a configuration of the zoo must be one of: {known}; got {label!r}{nearest}")
    one_of("a configuration of the zoo", label, labels())
    return files[label]


def read_archive(file: Path) -> Archive:
    """The archive that a file holds; refused where it was changed after it was packed, or holds more than runs."""
    content = file.read_bytes()
    if seal(content[:-SEAL]) != content[-SEAL:]:
        raise InputError(f"{file} is damaged (its digest does not match); install mnemoscope again")
    entry = read_manifest(file.parent).get(file.name.removesuffix(".zip"))
    if entry is not None and entry.sha256 != content[-SEAL:].decode():
        raise InputError(f"{file} is not the archive that {FILE} beside it lists; install mnemoscope again")
    found = Archive(label=file.name.removesuffix(".zip"), digest=content[-SEAL:].decode(), content=content)
    for name in found.open().namelist():
        if not _NAME.fullmatch(name):
            raise InputError(f"{file} is no archive of runs: {name!r} is none of their files; install mnemoscope again")
    return found


def is_zoo_word(path: str | Path) -> bool:
    """True if a path is a word for runs of the zoo; refuses unknown configurations, and unpacks nothing."""
    word, _, rest = str(path).partition(":")
    if word == WORD and (label := rest.partition("/")[0]):
        _file(label)
    return word == WORD


def unpack_word(path: str | Path) -> list[Path] | None:
    """The run directories that a word such as `zoo:<configuration>` names, unpacked; none: the path is no such word.

    Raises InputError where there are no such runs or they are not installed, their archive is damaged, there is no
    place to unpack them, or `zoo` is also a directory here.
    """
    word, colon, rest = str(path).partition(":")
    if word != WORD:
        return None
    if not colon and Path(word).is_dir():
        raise InputError(f"{word} is a directory here; write {word}: for the zoo, or {Path(word).absolute()} for that")
    if not rest and (absent := not_installed()):
        raise InputError(absent)
    label, _, run = rest.partition("/")
    found = [archive(name) for name in ([label] if label else labels())]
    if not run:
        return [place / name for each in found for place in [unpack(each)] for name in each.steps]
    one_of(f"a run of {word}:{label}", run, found[0].steps)
    return [unpack(found[0]) / run]


def is_unpacked(place: Path) -> bool:
    """True if a directory is a configuration of the zoo, unpacked: one that `unpack` gives."""
    if place.parent.parent.name != WORD or place.name not in labels():
        return False
    return archive(place.name).digest[:16] == place.parent.name


def listed_digests(run: Path) -> Mapping[str, str]:
    """The digests that the manifest beside its archive lists for a run of the zoo; none for any other."""
    seed = run.name.removeprefix("seed-")
    return _listed_runs(run.parent).get(int(seed), {}) if seed.isdecimal() else {}


@lru_cache(maxsize=256)
def _listed_runs(place: Path) -> Mapping[int, Mapping[str, str]]:
    """The digests that a manifest lists for the runs of an archive that was unpacked there; looked up once."""
    if place.parent.parent.name != WORD or place.name not in (files := _files()):
        return {}
    entry = read_manifest(files[place.name].parent).get(place.name)
    if entry is None or entry.sha256[:16] != place.parent.name:
        return {}
    return {seed: {**digests, "machine": entry.machine, "device": "cpu"} for seed, digests in entry.runs.items()}


def run_word(run: Path) -> str:
    """The name of a run on a command line: its path, or its word if it was unpacked from the zoo."""
    return f"{WORD}:{run.parent.name}/{run.name}" if is_unpacked(run.parent) else str(run)


def unpack(packed: Archive) -> Path:
    """Unpack what is not there yet, and return the directory that holds one run directory per seed.

    Its path has a digest of the archive in it. Raises InputError where neither the user's cache nor the directory for
    temporary files can be written.
    """
    problems = []
    for parent in (user_cache, _temporary):
        try:
            place = parent() / WORD / packed.digest[:16] / packed.label
            _write_missing_files(place, packed)
        except (OSError, RuntimeError) as error:  # Path.home() raises the latter where there is none
            problems.append(str(error))
            continue
        return place
    raise InputError(f"the zoo cannot be unpacked: {'; '.join(problems)}; set MNEMOSCOPE_CACHE to another directory")


def _temporary() -> Path:
    """A directory for temporary files that nobody else can write: its name can be guessed."""
    if not hasattr(os, "getuid"):  # on Windows every user has temporary files of their own
        return Path(tempfile.gettempdir()) / "mnemoscope"
    place = Path(tempfile.gettempdir()) / f"mnemoscope-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    state = place.lstat()
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise PermissionError(f"{place} can be written by others")
    return place


def _write_missing_files(place: Path, packed: Archive) -> None:
    """Write the files of the archive that `place` lacks."""
    with packed.open() as file:
        for info in file.infolist():
            target = place / info.filename
            if not target.is_file() or target.stat().st_size != info.file_size:
                write_atomically(target, file.read(info), shared=True)


def archives() -> Iterator[Archive]:
    """Every archive of the zoo, by label; raises InputError where there are none, or one is damaged."""
    return (archive(label) for label in labels())
