"""The onset of a measure in training, and the order of several onsets.

A measure has its onset at the first step from which it stays past a threshold (`threshold_onset`).
The threshold is fixed before looking. The onset needs no model of the curve, and it
is known no better than between the two steps (checkpoints or lines of metrics) around the crossing; between them the
value is interpolated.

A series that never stays past the threshold is censored: its onset is later than its last step, or never. It is
counted, never dropped silently. An onset in one run is no evidence about others: the seed is the unit. A thing that
emerges may be there before the measure moves, and a sharp measure (accuracy) can jump where a smooth one
(log-probability) drifts: look at both.

Of several events, over seeds (`order_of_onsets`): for every pair, in how many seeds the first comes before the
second, with the exact binomial interval (Clopper and Pearson 1934) of that share; the order of all events in every
seed, and the commonest; and Kendall's coefficient of concordance, W = 12 S / (n^2 (k^3 - k) - n T), for n seeds and k
events. Here S is the sum of the squared deviations of the rank sums and T = sum (t^3 - t) over ties (Kendall and
Babington Smith 1939). W is 1 if all seeds have one order, around 1 / n if they have nothing in common.

The seed is the unit. An event that never comes is placed after every one that does; of two that never do, the seed says
nothing. Both, and ties, count as seeds in which the first is not before the second: the share is of all seeds.

An order that all seeds share is no proof that the first is needed for the second: that takes an intervention. It also
depends on what was chosen as threshold for each.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from scipy.stats import binomtest, rankdata

from mnemoscope.core.errors import InputError, in_range, one_of


@dataclass(frozen=True, kw_only=True)
class Series:
    """Any number of series over the same ascending steps, one per row.

    `template` is an array of the dimensions that the rows run over, with their coordinates.
    """

    steps: Float[np.ndarray, " step"]
    rows: Float[np.ndarray, "row step"]
    template: xr.DataArray

    @property
    def defined(self) -> Bool[np.ndarray, " row"]:
        """Rows without a value that is missing or infinite."""
        return np.asarray(np.isfinite(self.rows).all(1))

    def labelled(self, figures: Sequence[Mapping[str, float | str]]) -> xr.Dataset:
        """Figures by name, one set per row, in the dimensions of the series without `step`."""
        dims, shape = self.template.dims, self.template.shape
        arrays = {name: (dims, np.array([row[name] for row in figures]).reshape(shape)) for name in figures[0]}
        return xr.Dataset(arrays, coords=self.template.coords)


def series(values: xr.DataArray, *, at_least: int) -> Series:
    """The rows of an array over `step` and any other dimensions, with `at_least` so many steps.

    Raises InputError where there is no numeric coordinate `step`, or it does not ascend from 0 or more.
    """
    if "step" not in values.dims or "step" not in values.coords:
        raise InputError(f"values need a dimension step with its coordinate; got dimensions {tuple(values.dims)}")
    steps = values.step.to_numpy().astype(float)
    if steps[0] < 0 or not (np.diff(steps) > 0).all():
        raise InputError("steps must ascend from 0 or more; sort them (`values.sortby('step')`)")
    if len(steps) < at_least:
        raise InputError(f"this needs at least {at_least} steps; got {len(steps)}")
    values = values.transpose(..., "step")
    rows = values.to_numpy().astype(float).reshape(-1, len(steps))
    return Series(steps=steps, rows=rows, template=values.isel(step=0, drop=True))


Axis = Literal["linear", "log"]
ThresholdDirection = Literal["rise", "fall"]
"""Past a threshold means above it (`rise`) or below it (`fall`)."""

ONSET_THRESHOLD = 0.5
"""A measure between 0 and 1 has its onset where it crosses this."""


def threshold_onset(
    values: xr.DataArray,
    threshold: float,
    *,
    direction: ThresholdDirection = "rise",
    hold: int | None = None,
    axis: Axis = "linear",
) -> xr.Dataset:
    """The first step from which a measure stays past a threshold.

    Args:
        values: Over `step` and any other dimensions, such as seed and skill.
        threshold: A value equal to it counts as past it.
        direction: Whether past means at least (`rise`) or at most (`fall`).
        hold: For how many steps of the series in a row the value has to stay past it; none: for all that follow.
        axis: Interpolation between the two steps around the crossing: straight in the step, or in log(1 + step).

    Returns:
        Over the other dimensions: `onset` (NaN where there is none), `after` (the last step of the series before it),
        `by` (the first at which the value stays past), in steps, and `status`: `reached`; `from the start` (past it at
        the first step already: the onset is that step at most); `never` (within the series); `undefined` (a value is
        missing or infinite).

    Raises:
        InputError: There is no ascending coordinate `step`, or an argument is outside its range.

    >>> accuracy = xr.DataArray([0.1, 0.4, 0.6, 0.9], coords={"step": [0, 10, 20, 30]})
    >>> ms.analyses.threshold_onset(accuracy, 0.5).onset.item()
    15.0
    """
    one_of("direction", direction, get_args(ThresholdDirection))
    one_of("axis", axis, get_args(Axis))
    in_range("threshold", threshold, -np.finfo(float).max, np.finfo(float).max)
    found = series(values, at_least=1)
    in_range("hold", 1 if hold is None else hold, 1, len(found.steps))
    sign = 1 if direction == "rise" else -1
    rows = [
        _crossing(found.steps, sign * row - sign * threshold, hold, axis) if defined else _none("undefined")
        for row, defined in zip(found.rows, found.defined, strict=True)
    ]
    past = "at least" if direction == "rise" else "at most"
    staying = "all that follow" if hold is None else f"{hold} in a row"
    return found.labelled(rows).assign_attrs(
        definition=f"first step from which the value is {past} {threshold:g}, for {staying}",
        interpolation="straight in the step" if axis == "linear" else "straight in log(1 + step)",
        unit="steps of training",
        n_steps=len(found.steps),
    )


def _none(status: str) -> dict[str, float | str]:
    return {"onset": np.nan, "after": np.nan, "by": np.nan, "status": status}


def _crossing(
    steps: Float[np.ndarray, " step"], height: Float[np.ndarray, " step"], hold: int | None, axis: Axis
) -> dict[str, float | str]:
    """The onset of a series of heights above the threshold."""
    stays = _stays(height >= 0, hold)
    if not stays.any():
        return _none("never")
    first = int(stays.argmax())
    if first == 0:
        return {"onset": steps[0], "after": np.nan, "by": steps[0], "status": "from the start"}
    pair = slice(first - 1, first + 1)
    u = np.log1p(steps[pair]) if axis == "log" else steps[pair]
    crossed = np.interp(0, height[pair], u)
    onset = np.expm1(crossed) if axis == "log" else crossed
    return {"onset": float(onset), "after": steps[first - 1], "by": steps[first], "status": "reached"}


def _stays(past: Bool[np.ndarray, " step"], hold: int | None) -> Bool[np.ndarray, " step"]:
    """True where the value is past the threshold from here on, or for the next `hold` steps."""
    if hold is None:
        return np.logical_and.accumulate(past[::-1])[::-1]
    long_enough = np.lib.stride_tricks.sliding_window_view(past, hold).all(1)
    return np.append(long_enough, np.zeros(hold - 1, bool))


def falls_with_learning(name: str) -> bool:
    """True if a measure of a trajectory falls when something is learned: a loss or a divergence."""
    return name in ("loss", "kl") or name.startswith(("loss_", "kl_")) or name.endswith("_kl")


def first_step(values: xr.DataArray) -> xr.DataArray:
    """The onset of one measure over (seed, step) in every seed; NaN: never. A measure that `falls` has it half-way
    down.

    >>> passed = xr.DataArray([False, True, True], coords={"step": [0, 10, 20]})
    >>> ms.analyses.first_step(passed).item()
    10.0
    """
    if not falls_with_learning(str(values.name)):
        return threshold_onset(values, ONSET_THRESHOLD).by
    return half_way_step(values, direction="fall")


def half_way_step(values: xr.DataArray, *, direction: ThresholdDirection) -> xr.DataArray:
    """The first step from which values stay half-way from their first to their largest (`rise`) or smallest one.

    It is over the other dimensions; NaN where a value is missing.

    >>> course = xr.DataArray([1.0, 1.5, 2.5, 3.0], coords={"step": [0, 10, 20, 30]})
    >>> ms.analyses.half_way_step(course, direction="rise").item()
    20.0
    """
    end = values.max("step") if direction == "rise" else values.min("step")
    middle = (values.isel(step=0) + end) / 2
    return threshold_onset(values - middle, 0.0, direction=direction).by


def steepest_step(values: xr.DataArray) -> xr.DataArray:
    """The step that values rise most to, from the step before in the series; a change point without a model of the
    curve. It is over the other dimensions; NaN where they never rise, or one is missing.

    >>> course = xr.DataArray([1.0, 1.5, 2.5, 3.0], coords={"step": [0, 10, 20, 30]})
    >>> ms.analyses.steepest_step(course).item()
    20.0
    """
    found = series(values, at_least=2)
    rises = np.diff(found.rows, axis=1)
    known = found.defined & (np.nan_to_num(rises).max(1) > 0)
    steps = found.steps[1:][np.nan_to_num(rises).argmax(1)]
    return found.labelled([{"step": step if there else np.nan} for step, there in zip(steps, known, strict=True)]).step


Times = Float[np.ndarray, "seed event"]


def order_of_onsets(onsets: Mapping[str, xr.DataArray], *, within: float = 0.0, confidence: float = 0.95) -> xr.Dataset:
    """The share of seeds in which each event comes before each other one, and the order of all.

    Args:
        onsets: Event to its onset over `seed`; NaN: never (such as `threshold_onset(...).onset`). Leave out seeds in
            which an onset is undefined.
        within: Two onsets that differ by at most this many steps are a tie; the spacing of the checkpoints, say.
        confidence: Of the intervals.

    Returns:
        Over (`first`, `second`), for different events: `before` (seeds in which the first comes before the second),
        `tie` (both at once), `neither` (both never), `share` = before / seeds with `low` and `high`. Over `seed`:
        `order`, such as `a < b = c; never: d`. Over `event`: `never` (seeds). Besides: `commonest_order`,
        `commonest_share` (of all seeds; it was chosen for being the largest), and `concordance` (Kendall's W, by
        exact ties whatever `within`; NaN where every seed has nothing but ties).

    Raises:
        InputError: There are fewer than two events, or they are not over the same seeds.

    >>> first, second = (xr.DataArray(steps, coords={"seed": [0, 1]}) for steps in ([10, 20], [30, 50]))
    >>> ms.analyses.order_of_onsets({"elimination": first, "recall": second}).commonest_order.item()
    'elimination < recall'
    """
    in_range("within", within, 0, np.finfo(float).max)
    in_range("confidence", confidence, 0.5, 0.999)
    seeds, names = _seeds(onsets), list(onsets)
    times = np.stack([values.to_numpy() for values in onsets.values()], 1).astype(float)
    times = np.where(np.isnan(times), np.inf, times)
    orders = [_order(dict(zip(names, row.tolist(), strict=True)), within) for row in times]
    commonest, count = Counter(orders).most_common(1)[0]
    return xr.Dataset(
        {
            **{name: (("first", "second"), values) for name, values in _pairs(times, within, confidence).items()},
            "order": ("seed", orders),
            "never": ("event", np.isinf(times).sum(0)),
            "commonest_order": commonest,
            "commonest_share": count / len(times),
            "concordance": _concordance(times),
        },
        coords={"first": names, "second": names, "event": names, "seed": seeds},
        attrs={
            "n": len(times),
            "unit": "seeds",
            "definition": "share of all seeds in which the first has its onset before the second; never comes last",
            "within": within,
            "confidence": confidence,
            "interval": "Clopper-Pearson",
        },
    )


def _seeds(onsets: Mapping[str, xr.DataArray]) -> np.ndarray:
    """The seeds that all onsets are over."""
    if len(onsets) < 2:
        raise InputError(f"an order needs the onsets of at least two events; got {len(onsets)}")
    for name, values in onsets.items():
        if values.dims != ("seed",) or "seed" not in values.coords or not values.size:
            raise InputError(f"the onsets of {name} must be over seed, with its coordinate; got {values.dims}")
    first = next(iter(onsets.values())).seed.to_numpy()
    for name, values in onsets.items():
        if values.seed.to_numpy().tolist() != first.tolist() or len(set(first.tolist())) < len(first):
            raise InputError(f"all onsets must be over the same seeds, each once; those of {name} are over others")
    return first


def _pairs(times: Times, within: float, confidence: float) -> dict[str, np.ndarray]:
    """Counts and shares of seeds for every ordered pair of events; nothing on the diagonal."""
    n, k = times.shape
    first, second = times[:, :, None], times[:, None, :]
    neither = np.isinf(first) & np.isinf(second)
    gap = np.where(neither, 0, second) - np.where(neither, 0, first)
    different = ~np.eye(k, dtype=bool)
    counts = {"before": gap > within, "tie": (np.abs(gap) <= within) & ~neither, "neither": neither}
    result = {name: (flags & different).sum(0) for name, flags in counts.items()}
    ends = [_interval(int(count), n, confidence) for count in result["before"].ravel()]
    shares = {"share": result["before"] / n, "low": [low for low, _ in ends], "high": [high for _, high in ends]}
    return result | {name: np.where(different, np.reshape(value, (k, k)), np.nan) for name, value in shares.items()}


def _interval(count: int, n: int, confidence: float) -> tuple[float, float]:
    ends = binomtest(count, n).proportion_ci(confidence, method="exact")
    return float(ends.low), float(ends.high)


def _order(times: Mapping[str, float], within: float) -> str:
    """The events of one seed in words; neighbours that tie are joined."""
    came = sorted((time, place, name) for place, (name, time) in enumerate(times.items()) if np.isfinite(time))
    text = came[0][2] if came else ""
    for (earlier, _, _), (later, _, name) in pairwise(came):
        text += (" = " if later - earlier <= within else " < ") + name
    missing = [name for name, time in times.items() if np.isinf(time)]
    return "; ".join(filter(None, [text, f"never: {', '.join(missing)}" if missing else ""]))


def _concordance(times: Times) -> float:
    """Kendall's W with the correction for ties."""
    n, k = times.shape
    ranks = rankdata(times, axis=1)
    sizes = [np.unique(row, return_counts=True)[1] for row in ranks]
    ties = sum(int((size**3 - size).sum()) for size in sizes)
    most = n**2 * (k**3 - k) - n * ties
    return float(12 * np.square(ranks.sum(0) - n * (k + 1) / 2).sum() / most) if most else np.nan
