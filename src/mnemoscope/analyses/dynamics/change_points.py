"""Whether a measure changes once in training, where, and how suddenly.

The change is the least-squares sigmoid a + (b - a) / (1 + exp(-(u - m) / s)) along the step or log(1 + step):
`dynamics.changepoint` has the fit and its intervals. It is weighed against a drift that is bent one way only, with
noise as persistent as what the drift leaves over: `dynamics.drift_test`. Where the drift would do, or where the
change is not seen whole, there is no position: NaN, and `status` says why.

*Shows* where one change of any height lies and how wide it is, from a tenth to nine tenths of it.

*Does not show* that there is only one: of two changes it gives one wide one, or none where stairs look like a drift.
A small p does not say that the change is sudden: read `relative_width`. The intervals hold for one sigmoid with
first-order autoregressive noise, of one run: other seeds vary more. What is shorter than the gap between two steps of
the series looks sudden.
"""

from dataclasses import asdict, fields
from typing import get_args

import numpy as np
import xarray as xr
from jaxtyping import Float

from mnemoscope.analyses.dynamics.changepoint import Change, fit_change
from mnemoscope.analyses.dynamics.onsets import Axis
from mnemoscope.analyses.dynamics.series import series
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.seeding import stream_seed

MOST_STEPS = 500
"""The candidates of a change take memory in the square of this."""
_TOLD = ("p", "explained", "explained_by_drift")  # also where there is no change
_PLACES = tuple(field.name for field in fields(Change) if field.name not in (*_TOLD, "whole"))


def change_point(
    values: xr.DataArray,
    *,
    axis: Axis = "linear",
    alpha: float = 0.01,
    confidence: float = 0.95,
    n_draws: int = 499,
    seed: int = 0,
) -> xr.Dataset:
    """The best sigmoid change of a measure along training.

    Args:
        values: Over `step` and any other dimensions, such as seed and skill; from 8 to 500 steps.
        axis: Whether the sigmoid is one along the step, or along log(1 + step), as suits checkpoints that are evenly
            spaced in the log.
        alpha: There is a change where p is at most this. At 0.01, on 300 simulated series of 17 or 40 steps each, flat,
            straight, saturating, logarithmic or a power: at most 0.01 called a change by mistake with independent
            noise, 0.02 with an autocorrelation of 0.5 and 0.04 with one of 0.8.
        confidence: Of the intervals.
        n_draws: Simulated series for p, which is at least 1 / (n_draws + 1).
        seed: They come from this seed's stream `change point`, the same ones for every series.

    Returns:
        Over the other dimensions, in steps: `position` (half of the change), `position_low`, `position_high`; `start`
        and `end` (a tenth and nine tenths of it); `width` from start to end, `width_low` (0: a sudden step is not
        excluded), `width_high` (infinite: a change as long as the series is not excluded); `relative_width`, which is
        width / position; `before`, `after`: the levels, in the unit of `values`. All of them NaN unless `status` is
        `change`. It may also be `no change` (p is above alpha), `not seen whole` (start, end and two steps of the
        series on either side of the position do not lie in the series) or `undefined` (a value is missing or
        infinite). Unless undefined: `p`, `explained` and `explained_by_drift` (shares of the variance).

    Raises:
        InputError: There is no ascending coordinate `step`, or an argument is outside its range.
    """
    one_of("axis", axis, get_args(Axis))
    in_range("confidence", confidence, 0.5, 0.999)
    in_range("n_draws", n_draws, 19, 1e6)
    in_range("alpha", alpha, 1 / (n_draws + 1), 0.5)
    found = series(values, at_least=8)
    if (n := len(found.steps)) > MOST_STEPS:
        way = f"thin them: values.isel(step=slice(None, None, {-(-n // MOST_STEPS)}))"
        raise InputError(f"a change point needs at most {MOST_STEPS} steps; got {n}; {way}")

    def figures(row: Float[np.ndarray, " step"]) -> dict[str, float | str]:
        if np.ptp(row) == 0:
            return _refused("no change", p=1.0, explained=0.0, explained_by_drift=0.0)
        rng = np.random.default_rng(stream_seed(seed, "change point"))
        change = fit_change(found.steps, row, log=axis == "log", confidence=confidence, n_draws=n_draws, rng=rng)
        return _reported(change, alpha)

    rows = [
        figures(row) if fine else _refused("undefined") for row, fine in zip(found.rows, found.defined, strict=True)
    ]
    return found.labelled(rows).assign_attrs(
        definition=f"least-squares sigmoid along {'step' if axis == 'linear' else 'log(1 + step)'}, against a drift",
        unit="steps of training",
        alpha=alpha,
        confidence=confidence,
        n_draws=n_draws,
        n_steps=n,
    )


def _reported(change: Change, alpha: float) -> dict[str, float | str]:
    told = {name: getattr(change, name) for name in _TOLD}
    if change.p > alpha:
        return _refused("no change", **told)
    if not change.whole:
        return _refused("not seen whole", **told)
    width = change.end - change.start
    places = {name: value for name, value in asdict(change).items() if name in _PLACES}
    return {**places, "width": width, "relative_width": width / change.position, **told, "status": "change"}


def _refused(status: str, **told: float) -> dict[str, float | str]:
    nothing = dict.fromkeys((*_PLACES, "width", "relative_width", *_TOLD), np.nan)
    return {**nothing, **told, "status": status}
