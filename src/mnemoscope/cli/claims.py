"""Claims by name, and verdicts as a trial has written them; neither needs a model."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mnemoscope.core.errors import InputError, one_of
from mnemoscope.judging.claim import CLAIMS, Claim


def claims_called(words: Sequence[str]) -> list[Claim]:
    """The claims that are called by their ids or by their systems, each once; all if there are no words.

    Raises:
        InputError: A word is neither.
    """
    claims = [CLAIMS.get(name) for name in CLAIMS.names()]
    claims.sort(key=lambda claim: (claim.system, len(claim.id), claim.id))
    known = dict.fromkeys([*(claim.system for claim in claims), *(claim.id for claim in claims)])
    for word in words:
        one_of("a claim or a system", word, known)
    return [claim for claim in claims if not words or claim.id in words or claim.system in words]


def read_verdicts(path: Path) -> list[dict[str, Any]]:
    """What `try_claims` has written, by its file or directory.

    Raises:
        InputError: There is none, or it is something else.
    """
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
