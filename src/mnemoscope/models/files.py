"""Files that are whole or absent, and where those go that can be made again."""

import os
import sys
from pathlib import Path
from uuid import uuid4


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


def user_cache() -> Path:
    """The directory that MNEMOSCOPE_CACHE names, or what the platform keeps for caches."""
    if given := os.environ.get("MNEMOSCOPE_CACHE"):
        return Path(given).absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "mnemoscope"
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "mnemoscope"
