"""In which order things set in during training, over seeds.

For every pair of events: in how many seeds the first sets in before the second, with the exact binomial interval
(Clopper and Pearson 1934) of that share; the order of all events in every seed, and the commonest; and Kendall's
coefficient of concordance, W = 12 S / (n^2 (k^3 - k) - n T) for n seeds and k events, where S is the sum of the squared
deviations of the rank sums and T = sum (t^3 - t) over ties (Kendall and Babington Smith 1939): 1 if all seeds have
one order, around 1 / n if they have nothing in common.

The seed is the unit. An event that never sets in comes after every one that does; of two that never do, the seed says
nothing. Both, and ties, count as seeds in which the first is not before the second: the share is of all seeds.

An order that all seeds share is no proof that the first is needed for the second: that takes an intervention. It also
depends on what was chosen as threshold for each.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.stats import binomtest, rankdata

from mnemoscope.core.errors import InputError, in_range

Times = Float[np.ndarray, "seed event"]


def order_of_onsets(onsets: Mapping[str, xr.DataArray], *, within: float = 0.0, confidence: float = 0.95) -> xr.Dataset:
    """How often each event comes before each other one, and in what order they come.

    Args:
        onsets: Event to its onset over `seed`; NaN: never (such as `threshold_onset(...).onset`). Leave out seeds in
            which an onset is undefined.
        within: Two onsets that differ by at most this many steps are a tie; the spacing of the checkpoints, say.
        confidence: Of the intervals.

    Returns:
        Over (`first`, `second`), for different events: `before` (seeds in which the first sets in before the second),
        `tie` (both at once), `neither` (both never), `share` = before / seeds with `low` and `high`. Over `seed`:
        `order`, such as `a < b = c; never: d`. Over `event`: `never` (seeds). Besides: `commonest_order`,
        `commonest_share` (of all seeds; it was chosen for being the largest), and `concordance` (Kendall's W, by
        exact ties whatever `within`; NaN where every seed has nothing but ties).

    Raises:
        InputError: There are fewer than two events, or they are not over the same seeds.
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
            "definition": "share of all seeds in which the first sets in before the second; never comes last",
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
