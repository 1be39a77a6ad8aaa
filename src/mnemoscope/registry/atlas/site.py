"""The atlas on disk: a directory of pages that a browser opens without a server, replaced whole by every build.

`atlas.json` lists the files of the site. A build removes the files that an earlier one lists and itself does not write,
and touches no others; a directory with files and without such a list is refused.
"""

import json
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from mnemoscope.claims.entry import Entry
from mnemoscope.core.errors import InputError
from mnemoscope.models.files import write_atomically
from mnemoscope.registry.atlas.pages import pages
from mnemoscope.registry.atlas.pieces import claim_file

LIST = "atlas.json"
_MADE_BY = "mnemoscope atlas"


def write_atlas(entries: Sequence[Entry], out: Path, library: str) -> list[str]:
    """Write the site in place of an earlier one, and return the paths of its files within it.

    Args:
        entries: Claims; each id is there once.
        out: The directory; it is empty, an atlas, or does not exist.
        library: Version of the library, for the foot of pages and for citations.

    Raises:
        InputError: There are no entries, two are about one claim, or `out` holds other files.
    """
    if not entries:
        raise InputError("an atlas needs at least one entry of a registry; got none")
    earlier = listed_files(out)
    found = {**pages(entries, library), "atlas.css": _style(), "atlas.js": _source("atlas.js")}
    content = {
        "made_by": _MADE_BY,
        "claims": {entry.id: claim_file(entry) for entry in sorted(entries, key=lambda each: each.id)},
        "files": sorted(found),
    }
    for name in sorted(set(earlier) - set(found)):
        _remove(out, name)
    write_atomically(out / LIST, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
    for name, text in found.items():
        write_atomically(out / name, text.encode())
    return [*content["files"], LIST]


def listed_files(out: Path) -> list[str]:
    """The files of the atlas that stands in a directory; raises InputError where the directory holds something else."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return []
    refused = InputError(f"--out {out} holds files and is no atlas; name an empty or a new directory")
    try:
        content = json.loads((out / LIST).read_text(encoding="utf-8"))
        names = content["files"] if content["made_by"] == _MADE_BY else None
    except (OSError, ValueError, TypeError, KeyError):
        raise refused from None
    if not isinstance(names, list) or not all(isinstance(name, str) and _is_inside(out, name) for name in names):
        raise refused
    return names


def _is_inside(out: Path, name: str) -> bool:
    place = Path(os.path.abspath(out / name))
    return place != Path(os.path.abspath(out)) and place.is_relative_to(os.path.abspath(out))


def _remove(out: Path, name: str) -> None:
    """Remove a file and the folders that it leaves empty."""
    (out / name).unlink(missing_ok=True)
    for folder in (out / name).parents:
        if folder == out or not folder.is_dir() or any(folder.iterdir()):
            return
        folder.rmdir()


def _style() -> str:
    """The style of all pages of this library, and the rules of the atlas."""
    return (files("mnemoscope.report") / "page.css").read_text(encoding="utf-8") + _source("atlas.css")


def _source(name: str) -> str:
    return (files("mnemoscope.registry.atlas") / name).read_text(encoding="utf-8")
