"""Numbers in words and in formats, without an array library: what every command prints."""

from collections.abc import Iterable
from itertools import groupby


def counted(n: int, thing: str) -> str:
    """The number of things, in words: `1 run`, `2 runs`."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def rounded(value: float, form: str = ".4f") -> str:
    """A number in a format such as `.2f` or `+.3g`; what is rounded to zero has no minus."""
    sign = form[:1] if form[:1] in "+- " else ""
    return f"{value:{sign}z{form.removeprefix(sign)}}"


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers in order, three or more in a row as a range: `0, 1, 16–31`."""
    found = []
    for _, members in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in members]
        found.append(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)))
    return ", ".join(found)
