"""Interleaved timing in one process, and the figures that come of it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

Contender = Callable[[], float]
"""Does a portion of work and returns how many units it was."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One row of the table.

    `value` is the median (None where it could not be measured) in `unit`, `x` for ratios; `spread` has the lower and
    upper quartile over repetitions. `aim` is the bound to reach, an upper one if `at_most`; None: for information only.
    """

    group: str
    name: str
    value: float | None
    unit: str
    spread: tuple[float, float] | None = None
    aim: float | None = None
    at_most: bool = False
    note: str = ""

    @property
    def reached(self) -> bool | None:
        """True if the aim is reached; None without an aim or a value."""
        if self.aim is None or self.value is None:
            return None
        return self.value <= self.aim if self.at_most else self.value >= self.aim


def interleave(
    contenders: Mapping[str, Contender], repetitions: int, clock: Callable[[], float] = time.process_time
) -> dict[str, list[float]]:
    """Seconds a unit of every contender, in turns (A B A B ...), so that a change of the machine's load hits all.

    Every contender does one portion first that does not count. The clock is processor time, which on one thread is the
    time on an idle machine; work that waits for a GPU needs `time.perf_counter`.
    """
    for work in contenders.values():
        work()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repetitions):
        for name, work in contenders.items():
            start = clock()
            units = work()
            seconds[name].append((clock() - start) / units)
    return seconds


def ratio(slow: Sequence[float], fast: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Median and quartiles of slow / fast, repetition by repetition."""
    each = [a / b for a, b in zip(slow, fast, strict=True)]
    if len(each) == 1:
        return each[0], (each[0], each[0])
    low, _, high = quantiles(each, n=4, method="inclusive")
    return median(each), (low, high)


def duration(seconds: float) -> str:
    """A time in a unit that suits it."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
