"""One process trains a run directory: it holds the file `.lock` there, and the system lets go of it however it ends."""

from pathlib import Path
from typing import TYPE_CHECKING

import lazy_loader

from mnemoscope.core.errors import InputError

if TYPE_CHECKING:
    import filelock
else:
    filelock = lazy_loader.load("filelock")  # a list of commands does not wait for it

NAME = ".lock"
PATIENCE = 0.5
"""Seconds in which somebody who only looks whether the lock is held has let go of it again."""


def hold(path: Path) -> "filelock.AcquireReturnProxy":
    """Hold a run directory for this process, as a context.

    Raises:
        InputError: Another process holds it.
    """
    try:
        return filelock.FileLock(path / NAME).acquire(timeout=PATIENCE)
    except filelock.Timeout:
        raise InputError(f"{path} is being trained by another process; wait for it or choose another") from None


def is_held(path: Path) -> bool:
    """Whether a process trains the run in that directory now; False where that cannot be found out."""
    if not (path / NAME).exists():
        return False
    try:
        with filelock.FileLock(path / NAME).acquire(blocking=False):
            return False
    except filelock.Timeout:
        return True
    except OSError:  # a directory that may only be read
        return False
