"""A picture of many claims at once: the share of replicates and the standardised effect of each, as inline SVG.

A row is a claim. On the left stands the share of replicates that meet the criteria, with its exact interval; a line
marks one half. On the right stands the distance of the mean effect from the margin in standard deviations between
replicates; a line marks the margin, and claims whose effects were not kept have no mark there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from mnemoscope.claims.entry import Entry
from mnemoscope.registry.atlas.words import outcome_words
from mnemoscope.report.rulings.differences import format_number
from mnemoscope.report.rulings.phrases import SIGNS

WIDTH, ROW, TOP = 460, 19, 34
SHARE, DISTANCE = (150.0, 270.0), (310.0, 446.0)
"""Left and right end of both scales."""
FARTHEST = 5.0
"""Standard deviations at either end of the right scale; an arrow marks what lies beyond."""
_LONGEST = 17


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A dot with its interval on one scale; `beyond` is -1 or 1 where the dot lies off the scale, else 0."""

    at: float
    low: float
    high: float
    beyond: int = 0


@dataclass(frozen=True, kw_only=True)
class Line:
    """A claim in the picture."""

    y: float
    id: str
    href: str
    sign: str
    outcome: str
    words: str
    """All of it as a sentence, for a pointer and for a screen reader."""
    share: Mark
    distance: Mark | None


@dataclass(frozen=True, kw_only=True)
class Forest:
    """A picture with its height in pixels, in which `WIDTH` is the width."""

    lines: tuple[Line, ...]
    height: int
    n_without: int
    """Claims in it that have no mark on the right scale."""


def forest(entries: Sequence[Entry], sizes: xr.Dataset, href_of: Callable[[Entry], str]) -> Forest:
    """The claims that have a verdict on some replicate, the largest share first.

    Args:
        entries: Claims.
        sizes: Their effects on common scales, from `effect_sizes`.
        href_of: The page of a claim.
    """
    found = {entry.id: sizes.sel(claim=entry.id) for entry in entries if entry.verdict is not None and entry.verdict.n}
    placed = [(entry, found[entry.id]) for entry in entries if entry.id in found]
    placed.sort(key=lambda pair: (-float(pair[1].share), -np.nan_to_num(float(pair[1].distance)), pair[0].id))
    lines = []
    for i, (entry, size) in enumerate(placed):
        outcome = str(size.outcome.item())
        share = float(size.share), *map(float, size.share_interval.values)
        distance = float(size.distance), *map(float, size.distance_interval.values)
        has_distance = bool(np.isfinite(distance[0]))
        words = f"{entry.short_id}: {entry.statement} {outcome_words(outcome)}; share {_text(share)}"
        if has_distance:
            words += f"; from the margin {_text(distance)} standard deviations"
        lines.append(
            Line(
                y=TOP + ROW * (i + 0.5),
                id=entry.short_id if len(entry.short_id) <= _LONGEST else f"{entry.short_id[: _LONGEST - 1]}…",
                href=href_of(entry),
                sign=SIGNS[outcome],  # pyright: ignore[reportArgumentType]
                outcome=outcome,
                words=words,
                share=_mark(share, SHARE, 0.0, 1.0),
                distance=_mark(distance, DISTANCE, -FARTHEST, FARTHEST) if has_distance else None,
            )
        )
    without = sum(line.distance is None for line in lines)
    return Forest(lines=tuple(lines), height=round(TOP + ROW * len(lines) + 6), n_without=without)


def _text(values: tuple[float, ...]) -> str:
    at, low, high = (format_number(value, ".2f") for value in values)
    return f"{at} [{low}, {high}]"


def _mark(values: tuple[float, ...], scale: tuple[float, float], first: float, last: float) -> Mark:
    left, right = scale

    def place(value: float) -> float:
        inside = min(max(value, first), last)
        return round(left + (right - left) * (inside - first) / (last - first), 1)

    at, low, high = values
    beyond = 1 if at > last else -1 if at < first else 0
    return Mark(at=place(at), low=place(low), high=place(high), beyond=beyond)
