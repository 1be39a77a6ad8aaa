"""`metrics.jsonl`: training progress, one JSON object a line, with the same measures on every line.

The last line of a run that is not finished may be cut short, as by a process that was killed, and is left out then.
Any other damage is refused.
"""

import json
from pathlib import Path

from mnemoscope.core.errors import InputError

ALWAYS = ("step", "train_loss", "test_loss")
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
    expected = dict.fromkeys([*ALWAYS, *entries[0]])
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
