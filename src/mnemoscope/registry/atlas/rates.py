"""Shares of claims by outcome, with exact intervals, by kind, system and paper; a single claim by its effect.

*Does not show* the rate among claims that nobody chose: claims of one system share models, and the intervals take them
as independent.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from mnemoscope.claims.entry import Bounds, Criterion, Entry, Outcome, Verdict
from mnemoscope.registry.atlas.words import outcome_of

DECIDED = tuple(outcome for outcome in get_args(Outcome) if outcome != "NOT_APPLICABLE")
"""The outcomes that are counted: each is a verdict."""
_CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The claims of a group: counts of outcomes, and the share of each with its interval."""

    name: str
    n: int
    """Claims with a verdict."""
    without: int
    """Claims that were not tried, or whose trial gave no verdict."""
    counts: dict[str, int]
    shares: dict[str, tuple[float, float, float]]
    """Share among claims with a verdict, and both ends of its interval; empty without any."""


def group_rates(entries: Iterable[Entry], group_of: Callable[[Entry], str]) -> list[Rates]:
    """Rates of every group, the largest first."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(group_of(entry), []).append(entry)
    found = [rates(name, members) for name, members in groups.items()]
    return sorted(found, key=lambda each: (-each.n, -each.without, each.name))


def rates(name: str, entries: Sequence[Entry]) -> Rates:
    """Counts and shares of outcomes, with exact (Clopper-Pearson) 95 % intervals."""
    counts = Counter(map(outcome_of, entries))
    n = sum(counts[outcome] for outcome in DECIDED)
    shares = {outcome: (counts[outcome] / n, *exact_interval(counts[outcome], n)) for outcome in DECIDED} if n else {}
    return Rates(
        name=name,
        n=n,
        without=len(entries) - n,
        counts={outcome: counts[outcome] for outcome in DECIDED},
        shares=shares,
    )


def exact_interval(k: int, n: int) -> tuple[float, float]:
    """The exact 95 % interval of a share (Clopper & Pearson 1934)."""
    from scipy.stats import binomtest

    found = binomtest(k, n).proportion_ci(_CONFIDENCE, method="exact")
    return float(found.low), float(found.high)


@dataclass(frozen=True, kw_only=True)
class Position:
    """One claim in numbers that have no unit."""

    share: tuple[float, float, float]
    """Share of replicates that meet the criteria, with its interval."""
    distance: tuple[float, float, float] | None
    """Distance of the mean effect from the margin in standard deviations between replicates, with its interval;
    positive: it clears the margin. None where effects were not kept."""


def position_of(entry: Entry) -> Position | None:
    """The position of a claim; None without a verdict on at least one replicate."""
    verdict = entry.verdict
    if verdict is None or not verdict.n:
        return None
    share, (low, high) = share_of(verdict)
    assert share is not None
    interval = (0.0 if low is None else low, 1.0 if high is None else high)
    return Position(share=(share, *interval), distance=_distance(entry))


def share_of(verdict: Verdict) -> tuple[float | None, Bounds]:
    """The share of replicates that meet the criteria and its exact interval; None for both without a replicate."""
    if not verdict.n:
        return None, (None, None)
    share = verdict.n_clear / verdict.n if verdict.share is None else verdict.share
    return share, verdict.share_interval or exact_interval(verdict.n_clear, verdict.n)


def _distance(entry: Entry) -> tuple[float, float, float] | None:
    """(effect - margin) / sd of the part that decides, in the direction of the claim, and both ends of its interval."""
    verdict = entry.verdict
    assert verdict is not None
    name = verdict.deciding or (entry.criteria[0].name if len(entry.criteria) == 1 else "")
    part = next((each for each in entry.criteria if each.name == name), None)
    if part is None or verdict.effect is None or not verdict.sd:
        return None
    low, high = verdict.effect_interval or (verdict.effect, verdict.effect)
    ends = (-math.inf if low is None else low, math.inf if high is None else high)
    between = (0.0,) if part.direction == "within" and ends[0] < 0 < ends[1] else ()
    first, *others = (_cleared_by(value, part) / verdict.sd for value in (verdict.effect, *ends, *between))
    return first, min(others), max(others)


def _cleared_by(value: float, part: Criterion) -> float:
    """The distance by which an effect clears its margin, negative where it misses it."""
    match part.direction:
        case "above":
            return value - part.margin
        case "below":
            return part.margin - value
        case "within":  # the margin on either side of 0
            return part.margin - abs(value)
