"""Effects of all claims on common scales, and which kinds of claim replicate.

Three scales stand beside the effect in its own unit. *Share*: replicates that meet the criteria, with Clopper and
Pearson's interval. *Effect over margin*: 1 + slack / |margin|, where the slack is the distance by which the effect
clears the margin in the claim's direction. That is effect / margin for a positive margin from above; 1 is the margin,
and larger values clear it. A margin of 0 has none. *Standardised distance*: g = J · slack / sd over the standard
deviation between replicates, with Hedges' correction J (1981, exact) and the interval of the noncentral t distribution.
Its variance for pooling is J² (1 / n + d² / 2n), with d = slack / sd (Borenstein et al. 2009, chapter 4). Where the
deviation is not on record, the interval of the mean gives the largest that is possible: no side of it is narrower than
Student's (`claims.intervals`). The distance is then the smallest possible.

Of a claim of several parts the one that decides counts.

*Does not show* how large an effect is for the model, as the margin is chosen by hand and the spread depends on the
training. Claims of one system share seeds, so that intervals over claims, which take these for independent, are too
narrow. Which claims were written down is no random draw either.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import xarray as xr
from scipy import special, stats

from mnemoscope.claims.entry import Criterion, Entry, Verdict
from mnemoscope.claims.intervals import CONFIDENCE, share_interval
from mnemoscope.claims.pooling import MIN_SYSTEMS, pool
from mnemoscope.registry.importing import DECISIONS

BOUND = ("low", "high")
"""Coordinates of the dimension `bound` of intervals."""


def effect_sizes(entries: Mapping[str, Entry]) -> xr.Dataset:
    """The verdict of each claim that has one, on common scales.

    Returns:
        Along `claim` (ids): `outcome`, `kind`, `system`, `paper` (a key; empty: none), `n`, `share`, `effect`, `unit`,
        `margin`, `over_margin` and `distance`, with `share_interval` and `distance_interval` along `bound`, and
        `variance` of the distance. NaN where a number is not on record, the margin is 0, or replicates do not differ.

    >>> entries = ms.registry.read_registry()
    >>> chosen = {id: entry for id, entry in entries.items() if entry.short_id == "T3"}
    >>> ms.registry.effect_sizes(chosen).share.item()
    0.875
    """
    rows = [_row(entry) for entry in entries.values() if entry.verdict is not None]
    words = ("outcome", "kind", "system", "paper", "unit")
    columns: dict[str, Any] = {name: ("claim", [str(row[name]) for row in rows]) for name in words}
    for name in ("n", "share", "effect", "margin", "over_margin", "distance", "variance"):
        columns[name] = ("claim", np.array([row[name] for row in rows], dtype=float))
    for name in ("share_interval", "distance_interval"):
        columns[name] = (("claim", "bound"), np.array([row[name] for row in rows], dtype=float).reshape(-1, 2))
    return xr.Dataset(columns, {"claim": [row["claim"] for row in rows], "bound": list(BOUND)})


def what_replicates(entries: Mapping[str, Entry], by: Literal["kind", "system", "paper"] = "kind") -> xr.Dataset:
    """The share of claims that replicate, by kind, system or paper.

    Returns:
        Along `group`: `n_judged` claims with a verdict, `n_decided` of them and `n_supported`; `share_decided` and
        `share_judged` that are supported, with exact intervals `of_decided` and `of_judged` along `bound`. `distance`
        is the random-effects mean of the standardised distances of `n_pooled` claims, with `distance_interval`, and NaN
        for fewer than three; `median_distance` is their median, which one claim without spread hardly moves.

    >>> entries = ms.registry.read_registry()
    >>> chosen = {id: entry for id, entry in entries.items() if entry.short_id in ("T13", "T14")}
    >>> ms.registry.what_replicates(chosen).n_decided.item()
    2
    """
    sizes = effect_sizes(entries)
    groups = sorted(set(sizes[by].to_numpy().tolist()) - {""})
    rows = []
    for group in groups:
        found = sizes.isel(claim=(sizes[by] == group).to_numpy())
        n_decided = int(found.outcome.isin(DECISIONS).sum())
        n_judged, n_supported = found.sizes["claim"], int((found.outcome == "SUPPORTED").sum())
        known = found.isel(claim=np.isfinite(found.variance.to_numpy()))
        pooled = None
        if known.sizes["claim"] >= MIN_SYSTEMS:
            pooled = pool(known.distance.to_numpy(), np.sqrt(known.variance.to_numpy()))
        rows.append(
            {
                "n_judged": n_judged,
                "n_decided": n_decided,
                "n_supported": n_supported,
                "share_decided": n_supported / n_decided if n_decided else math.nan,
                "of_decided": _bounds(share_interval(n_supported, n_decided)),
                "share_judged": n_supported / n_judged,
                "of_judged": _bounds(share_interval(n_supported, n_judged)),
                "n_pooled": known.sizes["claim"],
                "distance": math.nan if pooled is None else pooled.mean,
                "median_distance": math.nan if pooled is None else float(known.distance.median()),
                "distance_interval": (math.nan, math.nan) if pooled is None else _bounds(pooled.interval),
            }
        )
    found = {}
    counts = ("n_judged", "n_decided", "n_supported", "n_pooled")
    for name in (*counts, "share_decided", "share_judged", "distance", "median_distance"):
        found[name] = ("group", np.array([row[name] for row in rows]))
    for name in ("of_decided", "of_judged", "distance_interval"):
        found[name] = (("group", "bound"), np.array([row[name] for row in rows], dtype=float).reshape(-1, 2))
    return xr.Dataset(found, {"group": groups, "bound": list(BOUND)}, {"by": by})


def slack(criterion: Criterion, effect: float) -> float:
    """The distance by which an effect clears the margin, in the direction of the criterion."""
    match criterion.direction:
        case "above":
            return effect - criterion.margin
        case "below":
            return criterion.margin - effect
        case "within":
            return criterion.margin - abs(effect)


def standardised(distance: float, n: int) -> tuple[float, tuple[float, float], float]:
    """Hedges' g, its interval and its variance, of a mean distance from a point in standard deviations of `n` values.

    The interval, of the distance between populations, inverts the noncentral t distribution of distance · √n with n - 1
    degrees of freedom.
    """
    degrees = n - 1
    correction = math.exp(special.gammaln(degrees / 2) - special.gammaln((degrees - 1) / 2)) / math.sqrt(degrees / 2)
    t = distance * math.sqrt(n)
    tail = (1 - CONFIDENCE) / 2
    low, high = (float(special.nctdtrinc(degrees, level, t)) / math.sqrt(n) for level in (1 - tail, tail))
    return correction * distance, (low, high), correction**2 * (1 / n + distance**2 / (2 * n))


def _row(entry: Entry) -> dict[str, Any]:
    verdict = entry.verdict
    assert verdict is not None
    bounds = share_interval(verdict.n_clear, verdict.n)
    row = {
        "claim": entry.id,
        "outcome": verdict.outcome,
        "kind": entry.kind or "",
        "system": entry.system,
        "paper": "" if entry.source.paper is None else entry.source.paper.key,
        "n": verdict.n,
        "share": verdict.n_clear / verdict.n if verdict.n else math.nan,
        "share_interval": _bounds(bounds),
        "effect": math.nan if verdict.effect is None else verdict.effect,
        "unit": verdict.unit,
        **dict.fromkeys(("margin", "over_margin", "distance", "variance"), math.nan),
        "distance_interval": (math.nan, math.nan),
    }
    criterion = _deciding(entry.criteria, verdict.deciding)
    if criterion is None:
        return row
    row["margin"] = criterion.margin
    if verdict.effect is None:
        return row
    beyond = slack(criterion, verdict.effect)
    if criterion.margin:
        row["over_margin"] = 1 + beyond / abs(criterion.margin)
    sd = _largest_deviation(verdict) if verdict.sd is None else verdict.sd
    if sd and verdict.n > 2:
        row["distance"], row["distance_interval"], row["variance"] = standardised(beyond / sd, verdict.n)
    return row


def _largest_deviation(verdict: Verdict) -> float | None:
    """The standard deviation whose interval of the mean, by Student's t, is as wide as the narrower side on record."""
    if verdict.effect is None or verdict.effect_interval is None or None in verdict.effect_interval or verdict.n < 3:
        return None
    side = min(abs(bound - verdict.effect) for bound in verdict.effect_interval if bound is not None)
    return side * math.sqrt(verdict.n) / float(stats.t.isf((1 - CONFIDENCE) / 2, verdict.n - 1))


def _deciding(criteria: Iterable[Criterion], name: str) -> Criterion | None:
    """The criterion that decides; None where it is not on record and there are several."""
    known = list(criteria)
    return known[0] if len(known) == 1 else next((each for each in known if each.name == name), None)


def _bounds(interval: Any) -> tuple[float, float]:
    return interval.low, interval.high
