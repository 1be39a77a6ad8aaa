"""P-values by cell against a stated null, and intervals of means; cells are rows, clusters of prompts are columns.

- `signs`: an effect is as often positive as negative, equally large. Signs are flipped, cluster by cluster; with few
  clusters all flips are counted, otherwise some are drawn. For right and wrong answers this is McNemar's exact test.
- `heads`: a head does no more than one of its layer that is drawn anew for every cluster.
- `labels`: what a probe reads has nothing to do with the labels, which are dealt anew to the clusters.
- `controls`: an effect is one of those on control models or control prompts.

All but `labels` are two-sided. Of m draws of which b are as extreme, p is (b + 1) / (m + 1) and never 0. The same draws
serve all cells, so that the dependence between cells stays as it is.

Intervals are studentised bootstraps over clusters, and neither side is narrower than Student's; `claims.intervals` says
why, and how they compare with percentile and BCa intervals.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int
from scipy.special import stdtrit

from mnemoscope.analyses.auditing.effects import Readings

Effects = Float[np.ndarray, "cell cluster"]
"""Means of clusters; NaN where a cell has none."""

EXACT = 13
"""Most clusters for which all flips of signs are counted: half of them, 4096, tell all."""
CONFIDENCE = 0.95
N_RESAMPLES = 2000
_AT_ONCE = 2**22
_FLOOR = 0.3
"""Smallest error of a resample, as a share of the error."""
_ROUNDING = 1e-6
"""Effects are differences of numbers in single precision: sums closer than this share of the largest are equal."""


def mean_effects(effects: Effects) -> Float[np.ndarray, " cell"]:
    """The mean over clusters; NaN where a cell has none."""
    total, n = np.nansum(effects, 1), np.isfinite(effects).sum(1)
    return np.divide(total, n, out=np.full(len(effects), np.nan), where=n > 0)


def flip_signs(effects: Effects, n_draws: int, rng: np.random.Generator) -> Float[np.ndarray, " cell"]:
    """P against effects that are symmetric about 0."""
    values = np.nan_to_num(effects)
    n = effects.shape[1]
    bound, exact = _bound(values.sum(1), n * abs(values).max(initial=0)), n <= EXACT
    extreme, drawn = np.zeros(len(effects)), 0
    for signs in _all_signs(n) if exact else _drawn_signs(n, n_draws, len(effects), rng):
        extreme += (abs(values @ signs) >= bound[:, None]).sum(1)
        drawn += signs.shape[1]
    return extreme / drawn if exact else (extreme + 1) / (drawn + 1)


def least_p(n_clusters: int, n_draws: int) -> float:
    """The smallest p that flips of signs can give."""
    return 2.0 ** (1 - n_clusters) if n_clusters <= EXACT else 1 / (n_draws + 1)


def _all_signs(n: int) -> Iterator[Float[np.ndarray, "cluster draw"]]:
    """All flips; the first sign stays, since the flip of all signs has the same size."""
    numbers = np.arange(2 ** (n - 1))
    yield 1.0 - 2.0 * ((numbers >> np.arange(n)[:, None]) & 1)


def _drawn_signs(
    n: int, n_draws: int, n_cells: int, rng: np.random.Generator
) -> Iterator[Float[np.ndarray, "cluster draw"]]:
    for size in _chunks(n_draws, max(n, n_cells)):
        yield 2.0 * rng.integers(2, size=(n, size), dtype=np.int8) - 1


def draw_heads(
    effects: Float[np.ndarray, "other head cluster"], n_draws: int, rng: np.random.Generator
) -> Float[np.ndarray, "other head"]:
    """P against a head of the same layer that is drawn anew for every cluster."""
    values = np.nan_to_num(effects)
    n_others, n_heads, n = values.shape
    bound, extreme = _bound(values.sum(2), n * abs(values).max(initial=0)), np.zeros((n_others, n_heads))
    for size in _chunks(n_draws, n_others * n):
        chosen = rng.integers(n_heads, size=(size, n))
        sums = abs(values[:, chosen, np.arange(n)].sum(-1))
        extreme += (sums[:, None] >= bound[..., None]).sum(-1)
    return (extreme + 1) / (n_draws + 1)


def deal_labels(
    readings: Readings, cluster: Int[np.ndarray, " prompt"], n_draws: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "cell prompt"], Float[np.ndarray, " cell"]]:
    """The score of every prompt above its mean over labels that are dealt anew, and p against such labels.

    All prompts of a cluster have one label, and clusters are numbered from 0.
    """
    count = np.bincount(cluster)
    weight, n = 1 / count[cluster] / len(count), len(count)
    labels = readings.label[:, np.unique(cluster, return_index=True)[1]]
    own = readings.scores(readings.prediction, readings.label)
    bound, extreme, total = own @ weight - _ROUNDING * (abs(own) @ weight), np.zeros(len(own)), np.zeros(own.shape)
    for size in _chunks(n_draws, own.size):
        dealt = rng.permuted(np.tile(np.arange(n), (size, 1)), axis=1)[:, cluster]
        scores = readings.scores(readings.prediction[:, None], labels[:, dealt])
        extreme += (scores @ weight >= bound[:, None]).sum(1)
        total += scores.sum(1)
    return own - total / n_draws, (extreme + 1) / (n_draws + 1)


def rank_among(effects: Effects, controls: Float[np.ndarray, "control cell"]) -> Float[np.ndarray, " cell"]:
    """P against the mean effects of controls, cell by cell."""
    means = mean_effects(effects)
    extreme = (abs(controls) >= _bound(means, float(np.nanmax(abs(np.vstack([means, controls])))))).sum(0)
    return (extreme + 1) / (len(controls) + 1)


def mean_intervals(effects: Effects, rng: np.random.Generator) -> Float[np.ndarray, "end cell"]:
    """The ends of the interval of every mean; NaN with fewer than two clusters."""
    there, values = np.isfinite(effects).astype(float), np.nan_to_num(effects)
    n, mean = there.sum(1), mean_effects(effects)
    centred = np.where(there > 0, values - np.nan_to_num(mean)[:, None], 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.sqrt((centred**2).sum(1) / (n - 1) / n)
        roots = []
        for size in _chunks(N_RESAMPLES, max(effects.shape)):
            times = rng.multinomial(effects.shape[1], np.full(effects.shape[1], 1 / effects.shape[1]), size).T
            drawn = there @ times
            shift, square = centred @ times / drawn, centred**2 @ times / drawn
            spread = np.sqrt(np.maximum(square - shift**2, 0) / (drawn - 1))
            roots.append(shift / np.maximum(spread, _FLOOR * error[:, None]))
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(np.nan_to_num(np.concatenate(roots, 1)), [tail, 1 - tail], axis=1)
    student = stdtrit(np.maximum(n - 1, 1), 1 - tail)
    return np.stack([mean - np.maximum(high, student) * error, mean - np.minimum(low, -student) * error])


def _bound(totals: Float[np.ndarray, "*shape"], largest: float) -> Float[np.ndarray, "*shape"]:
    """The size from which a draw is as extreme, where none is above `largest`: rounding tells no equal ones apart."""
    return abs(totals) - _ROUNDING * largest


def _chunks(n_draws: int, n_each: int) -> Iterator[int]:
    """Numbers of draws at a time."""
    size = max(1, _AT_ONCE // max(n_each, 1))
    for start in range(0, n_draws, size):
        yield min(size, n_draws - start)
