"""The task's knowledge of the answers at one slot, in words: the target, the answer of recall, what is ruled out.

A value that an earlier pair has used is ruled out unless x repeats: then the y of the earlier pair is the only answer.
"""

import xarray as xr

TARGET, RECALLED, USED = "✓ target", "↩ y of slot {}", "✕ used"
"""Marks of one character, each with its meaning."""


def marks(at: xr.Dataset, value: int) -> list[str]:
    """Words on one value at one slot of the result of `predict`."""
    found = [TARGET] if value == int(at.target) else []
    if at.repeats and value == recalled(at):
        return [*found, RECALLED.format(int(at.repeats))]
    return [*found, USED] if bool(at.used.sel(value=value)) else found


def recalled(at: xr.Dataset) -> int:
    """The y of the earlier slot with the same x: the one value that can follow."""
    return int(at.bayes.idxmax())


def exact(at: xr.Dataset) -> str:
    """The answer of the exact predictor at one slot, and its skill."""
    if at.repeats:
        return f"{recalled(at)}, by recall"
    possible = [str(int(value)) for value in at.value.values if float(at.bayes.sel(value=value)) > 0]
    if len(possible) == 1:
        return f"{possible[0]}, by elimination"
    return f"any of {', '.join(possible)}"
