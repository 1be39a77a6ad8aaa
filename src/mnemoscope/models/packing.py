"""Packing runs for the zoo: what an archive holds of each, and what is refused.

Of every run: specification, metrics and the last checkpoint. Of the first seed all checkpoints, for what is read along
training. A compact archive has compact checkpoints, the last of every run, and what was measured of all the others
after training. The state that training continues from is left out. Equal runs give equal bytes, with the same version
of the compression library.
"""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from zipfile import ZIP_LZMA, ZipFile, ZipInfo

from mnemoscope.core.errors import InputError
from mnemoscope.models.checkpoint import compact_checkpoint
from mnemoscope.models.files import write_atomically
from mnemoscope.models.manifest import drop_entry
from mnemoscope.models.run import COMPACT, Run, by_label
from mnemoscope.models.zoo import SEAL, read_archive, seal

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time that every file of an archive carries: the earliest that a zip file can."""


def pack(runs: Sequence[Run], directory: Path, *, compact: bool = False, add: bool = False) -> Path:
    """Write the archive of one configuration.

    The runs are finished and differ in the seed only. Paths in their commands are cut to the last name. The archive
    `<label>.zip` takes the place of an earlier one, and of its entry in the manifest. With `compact` checkpoints are
    compact, and trajectories take the place of all but the last. With `add` the other seeds of the earlier archive
    stay, as they are. Raises InputError where the runs are of several configurations, one is not finished, a file of it
    is missing or damaged, or the earlier archive is.
    """
    groups = by_label(runs)
    if len(groups) != 1:
        raise InputError(f"an archive holds one configuration; got {', '.join(groups) or 'no runs'}")
    ((label, group),) = groups.items()
    group = sorted(group, key=lambda run: run.spec.seed)
    file = directory / f"{label}.zip"
    files = dict(_unpacked(file)) if add and file.exists() else {}
    for run in group:
        seed = f"seed-{run.spec.seed:02d}/"
        files = {name: data for name, data in files.items() if not name.startswith(seed)}
        found = _compact(run) if compact else _files(run, all_steps=run is group[0])
        files |= {seed + name: data for name, data in found}
    drop_entry(directory, label)
    write_atomically(file, _archived(files))
    return file


def _unpacked(file: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files of an archive."""
    found = read_archive(file).open()
    return ((name, found.read(name)) for name in found.namelist())


def _archived(files: Mapping[str, bytes]) -> bytes:
    """An archive, sealed; its runs ascend by seed."""
    content = io.BytesIO()
    with ZipFile(content, "w") as archive:
        for name in sorted(files, key=lambda name: int(name.partition("/")[0].removeprefix("seed-"))):
            entry = ZipInfo(name, _EPOCH)
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            archive.writestr(entry, files[name], ZIP_LZMA)
        archive.comment = b"0" * SEAL
    body = content.getvalue()[:-SEAL]
    return body + seal(body)


def _files(run: Run, *, all_steps: bool) -> Iterator[tuple[str, bytes]]:
    """Name and content of the files of a run that are kept, each of them read once to see that it is whole."""
    yield from _record(run)
    for step in run.kept_steps if all_steps else (run.last_step,):
        run.hooked(step)
        yield f"checkpoints/{step:08d}.safetensors", run.checkpoint_path(step).read_bytes()


def _compact(run: Run) -> Iterator[tuple[str, bytes]]:
    """The same of a compact archive."""
    yield from _record(run)
    measured, steps = run.trajectory(), run.kept_steps
    if measured is None or tuple(measured.step.values.tolist()) != steps:
        raise InputError(
            f"{run.path} has no trajectory over all its checkpoints; `mnemoscope evaluate --checkpoints` makes it"
        )
    yield "trajectory.json", run.trajectory_path.read_bytes()
    content = compact_checkpoint(run.hooked(steps[-1]), run.untrained(own=True), step=steps[-1])
    yield f"checkpoints/{steps[-1]:08d}{COMPACT}", content


def _record(run: Run) -> Iterator[tuple[str, bytes]]:
    """Specification, metrics and the mark of the end of a finished run."""
    if not run.finished:
        raise InputError(f"{run.path} is not finished; the command that trained it continues it")
    last = run.last_step
    if int(run.metrics().step[-1]) != last:
        raise InputError(f"{run.path / 'metrics.jsonl'} does not reach step {last}; restore it or train again")
    yield "run.json", _portable((run.path / "run.json").read_text(encoding="utf-8"))
    yield "metrics.jsonl", (run.path / "metrics.jsonl").read_bytes()
    yield "done", b""


def _portable(text: str) -> bytes:
    """The content of run.json with no path of the machine in its command."""
    content = json.loads(text)
    content["command"] = [_local(word) for word in content["command"]]
    if "guest" in content:
        content["guest"] = Path(content["guest"]).name
    return (json.dumps(content, indent=2) + "\n").encode()


def _local(word: str) -> str:
    """A word of a command with its path cut to the last name."""
    option, equals, value = word.partition("=")
    if "/" in option:
        return Path(word).name
    return option + equals + Path(value).name if "/" in value else word
