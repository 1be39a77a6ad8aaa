"""Files that hold no tensor: atomic writes, YAML of users, and the log of metrics and the lock of a run directory.

`metrics.jsonl` holds training progress, one JSON object a line, with the same measures on every line. The last line of
an unfinished run may be cut short, as by a process that was killed, and is left out then. Any other damage is refused.

One process trains a run directory, on whichever machine it is. On one machine the system decides: a process holds the
file `.lock`, and the system releases it however the process ends. Between machines that share a file system such locks
may not be seen, so the holder also writes who it is into `.holder`, and touches that file while it lives. A holder on
another machine whose file was not touched for `LEASE` seconds, by the clock of the file system, is taken for dead. One
that was taken for dead and was not writes no more.
"""

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import lazy_loader

from mnemoscope.core.errors import InputError


def write_atomically(path: Path, content: bytes, *, shared: bool = False) -> None:
    """Replace `path` by `content` in one move: a reader, or a run continued after a kill, never sees a part.

    With `shared` other processes may be writing the same file, so that an incomplete file has a separate name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid4().hex if shared else 'part'}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def read_yaml(file: Path, called: str | None = None) -> Any:
    """The content of a YAML file; raises InputError, which says what the file is `called`, where it cannot be read."""
    import yaml

    called = called or str(file)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where it is compiled
    try:
        return yaml.load(file.read_text(encoding="utf-8"), loader)
    except OSError as error:
        raise InputError(f"{called} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: another encoding, or 2001-02-30
        raise InputError(f"{called} is no YAML: {' '.join(str(error).split())}") from None


def user_cache() -> Path:
    """The directory that MNEMOSCOPE_CACHE names, or what the platform keeps for caches."""
    if given := os.environ.get("MNEMOSCOPE_CACHE"):
        return Path(given).absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "mnemoscope"
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "mnemoscope"


COMMON_METRICS = ("step", "train_loss", "test_loss")
"""The names that every line holds, whatever the task."""


def read_progress(file: Path, *, finished: bool) -> list[dict[str, float]]:
    """The lines of a run's `metrics.jsonl`, in order; `step` is an int.

    Only an unfinished run may have a line that is cut short. Raises InputError where a line is damaged, or there is
    none.
    """
    lines = file.read_bytes().splitlines(keepends=True)
    if lines and not finished and not lines[-1].endswith(b"\n"):
        lines.pop()
    if not lines:
        raise _damaged(file, "holds no whole line")
    entries = [_entry(file, number, line) for number, line in enumerate(lines, start=1)]
    expected = dict.fromkeys([*COMMON_METRICS, *entries[0]])
    for number, entry in enumerate(entries, start=1):
        if missing := [name for name in expected if name not in entry]:
            raise _damaged(file, f"line {number} lacks {', '.join(missing)}")
        if unknown := [name for name in entry if name not in expected]:
            raise _damaged(file, f"line {number} holds {', '.join(unknown)}, which line 1 lacks")
    return entries


def _entry(file: Path, number: int, line: bytes) -> dict[str, float]:
    try:
        entry = json.loads(line.decode())
    except UnicodeDecodeError:
        raise _damaged(file, f"line {number} is not UTF-8") from None
    except ValueError:
        raise _damaged(file, f"line {number} is cut short or not JSON") from None
    if not isinstance(entry, dict):
        raise _damaged(file, f"line {number} is no JSON object")
    for name, value in entry.items():
        if type(value) is not int and (name == "step" or type(value) is not float):
            kind = "an integer" if name == "step" else "a number"
            raise _damaged(file, f"{name} on line {number} must be {kind}, and is {json.dumps(value)[:40]}")
    return entry


def _damaged(file: Path, what: str) -> InputError:
    return InputError(f"{file} is damaged: {what}; restore the file, or delete the run directory and train again")


if TYPE_CHECKING:
    import filelock
else:
    filelock = lazy_loader.load("filelock")  # a list of commands does not wait for it

LOCK_FILE = ".lock"
HOLDER_FILE = ".holder"
LOCK_PATIENCE = 0.5
"""Seconds in which a process that only tests the lock has released it again."""
LEASE = 120.0
"""Seconds after which a holder on another machine that shows no life is taken for dead."""
TOUCHED_EVERY = 15.0
"""Seconds between two signs of life."""


class RunHeldError(InputError):
    """Another process trains the run."""


@dataclass(frozen=True)
class HeldDirectory:
    """A run directory that is held."""

    path: Path
    token: str = field(default_factory=lambda: uuid4().hex)
    released: threading.Event = field(default_factory=threading.Event)
    lost: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise RunHeldError if another process took this one for dead; called before something is written."""
        if self.lost.is_set():
            raise RunHeldError(f"{self.path} was taken over by another process, since this one showed no life for long")

    def _show_life(self) -> None:
        while not self.released.wait(TOUCHED_EVERY):
            if _holder(self.path).get("token") != self.token:
                self.lost.set()
                return
            with contextlib.suppress(OSError):  # told by whatever is written next
                os.utime(self.path / HOLDER_FILE)


@contextlib.contextmanager
def hold_directory(path: Path) -> Iterator[HeldDirectory]:
    """Hold a run directory for this process; raises RunHeldError where another process holds it."""
    with _locked_here(path) as decided_here:
        if elsewhere := _machine_of_live_holder(path, here=not decided_here):
            raise RunHeldError(
                f"{path} is being trained on {elsewhere}; wait for it or choose another; if that machine is gone, its "
                f"claim ends after {LEASE:.0f} seconds"
            )
        held = HeldDirectory(path)
        content = {"host": socket.gethostname(), "pid": os.getpid(), "token": held.token}
        write_atomically(path / HOLDER_FILE, json.dumps(content).encode(), shared=True)
        signs = threading.Thread(target=held._show_life, daemon=True, name=f"holds {path}")
        signs.start()
        try:
            yield held
        finally:
            held.released.set()
            signs.join()
            if _holder(path).get("token") == held.token:
                (path / HOLDER_FILE).unlink(missing_ok=True)


@contextlib.contextmanager
def _locked_here(path: Path) -> Iterator[bool]:
    """Hold the lock that other processes of this machine see; False where the file system has no locks."""
    lock = filelock.FileLock(path / LOCK_FILE)
    try:
        lock.acquire(timeout=LOCK_PATIENCE)
    except filelock.Timeout:
        raise RunHeldError(f"{path} is being trained by another process; wait for it or choose another") from None
    except NotImplementedError:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def is_held(path: Path) -> bool:
    """True if a process trains the run in that directory now; False where that cannot be found out."""
    if not (path / LOCK_FILE).exists():
        return False
    try:
        with filelock.FileLock(path / LOCK_FILE).acquire(blocking=False):
            return bool(_machine_of_live_holder(path))
    except filelock.Timeout:
        return True
    except NotImplementedError:
        return bool(_machine_of_live_holder(path, here=True))
    except OSError:  # a directory that may only be read
        return False


def _machine_of_live_holder(path: Path, *, here: bool = False) -> str:
    """The machine on which a process showed not long ago that it holds the directory; empty: there is none.

    `here` allows this machine. A process here would hold a lock where there are locks, so one that is only written down
    is dead.
    """
    holder = _holder(path)
    if "host" not in holder or (holder["host"] == socket.gethostname() and not here):
        return ""
    try:
        (path / LOCK_FILE).touch()  # as old as a sign of life that was given just now
        age = (path / LOCK_FILE).stat().st_mtime - (path / HOLDER_FILE).stat().st_mtime
    except OSError:
        return ""
    return str(holder["host"]) if age < LEASE else ""


def _holder(path: Path) -> dict[str, object]:
    try:
        content = json.loads((path / HOLDER_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
