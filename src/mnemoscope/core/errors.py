"""The error that means "the input is wrong", and numbers in words; nothing here needs an array library."""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import groupby


class InputError(ValueError):
    """Input that the caller can mend.

    The message names the argument, what is allowed, what was given and the way out.

    >>> try:
    ...     ms.ablate("v3", batch, skills=skills, reference=batch)
    ... except ms.InputError as error:
    ...     print(error)
    model must be a run, a subject or a hooked model such as a HookedTransformer; got 'v3': open it with ms.open_run
    """


def one_of(argument: str, given: object, allowed: Iterable[object]) -> None:
    """Refuse a value that is not among the allowed ones, with InputError."""
    allowed = allowed if isinstance(allowed, tuple) else list(allowed)
    if given not in allowed:
        names = ", ".join(str(a) for a in allowed)
        raise InputError(f"{argument} must be one of: {names}; got {given!r}{suggest_nearest(given, allowed)}")


def suggest_nearest(given: object, allowed: Iterable[object]) -> str:
    """The end of a message: which allowed name is most like the one that was given; empty where none is like it."""
    found = get_close_matches(str(given), [str(a) for a in allowed], n=1)
    return f"; the nearest: {found[0]}" if found else ""


def in_range(argument: str, given: float, low: float, high: float) -> None:
    """Refuse a number outside the closed interval from `low` to `high` with InputError; NaN is always outside."""
    if not low <= given <= high:
        if low == high:
            bounds = f"{low:g}"
        elif high == float("inf"):
            bounds = f"at least {low:g}"
        else:
            bounds = f"from {low:g} to {high:g}"
        raise InputError(f"{argument} must be {bounds}; got {given!r}")


def check_memory(what: str, needed: int, max_bytes: int, way_out: str) -> None:
    """Refuse what would take more memory than is allowed, before it is allocated, and say how much would do."""
    if needed > max_bytes:
        raise InputError(
            f"{what} takes {needed / 1e9:,.2f} GB and max_bytes allows {max_bytes / 1e9:,.2f}; {way_out}, or allow "
            f"max_bytes={needed}"
        )


def pluralise(n: int, thing: str) -> str:
    """The number of things, in words: `1 run`, `2 runs`."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def format_rounded(value: float, form: str = ".4f") -> str:
    """A number in a format such as `.2f` or `+.3g`; what is rounded to zero has no minus."""
    sign = form[:1] if form[:1] in "+- " else ""
    return f"{value:{sign}z{form.removeprefix(sign)}}"


def format_ranges(numbers: Iterable[int]) -> str:
    """Whole numbers in order, three or more in a row as a range: `0, 1, 16–31`."""
    found = []
    for _, members in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in members]
        found.append(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)))
    return ", ".join(found)
