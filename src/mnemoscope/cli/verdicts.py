"""Verdicts as a trial has written them; no claim is needed to read them."""

import json
from pathlib import Path
from typing import Any

from mnemoscope.core.errors import InputError


def read_verdicts(path: Path) -> list[dict[str, Any]]:
    """The verdicts that `try_claims` has written, by its file or directory."""
    file = path / "verdicts.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{file} does not exist; `mnemoscope claims run` writes one") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} holds no verdicts: {error}") from None
    if not isinstance(content, list) or not all(isinstance(entry, dict) and "outcome" in entry for entry in content):
        raise InputError(f"{file} holds no verdicts; `mnemoscope claims run` writes such a file")
    return content
