"""Shares of claims with each outcome, with exact intervals, by kind, system and paper.

*Does not show* the rate among claims that nobody chose: claims of one system share models, and the intervals take them
as independent.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from mnemoscope.claims.entry import Bounds, Entry, Outcome, Verdict
from mnemoscope.claims.intervals import share_interval
from mnemoscope.registry.atlas.words import outcome_of

DECIDED = tuple(outcome for outcome in get_args(Outcome) if outcome != "NOT_APPLICABLE")
"""The outcomes that are counted: each is a verdict."""


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
    shares = {outcome: (counts[outcome] / n, *_bounds(counts[outcome], n)) for outcome in DECIDED} if n else {}
    return Rates(
        name=name,
        n=n,
        without=len(entries) - n,
        counts={outcome: counts[outcome] for outcome in DECIDED},
        shares=shares,
    )


def share_of(verdict: Verdict) -> tuple[float | None, Bounds]:
    """The share of replicates that meet the criteria and its exact interval; None without a replicate."""
    if not verdict.n:
        return None, (None, None)
    share = verdict.n_clear / verdict.n if verdict.share is None else verdict.share
    return share, verdict.share_interval or _bounds(verdict.n_clear, verdict.n)


def _bounds(k: int, n: int) -> tuple[float, float]:
    found = share_interval(k, n)
    return found.low, found.high
