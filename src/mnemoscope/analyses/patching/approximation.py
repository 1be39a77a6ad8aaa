"""Agreement of an estimate of patching with the exact sweep: figures for one model and one set of prompts.

Both results are taken as effects averaged over prompts: what the patch takes away under noising, and what it brings
back under denoising. Cells are edges, or activations of one kind; each metric and direction is compared by itself.

It shows how far the estimate can stand in for the sweep on this model. A high correlation does not show that the edges
that matter are found, since it depends on a few large effects: look at the overlap, and at the slope, which is below
one where the gradient saturates. Nor does it carry over to another model or to other prompts.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from scipy.stats import rankdata

from mnemoscope.core.errors import InputError, in_range

TOP = (3, 5, 10, 20)
SHARE = 0.05
"""Share of the largest exact effect: smaller ones have no sign worth agreeing on."""
NEGLIGIBLE = 1e-5
"""Share of the largest exact effect: rounding alone leaves as much of no effect."""


def approximation(
    estimate: xr.Dataset, exact: xr.Dataset, *, top: Sequence[int] = TOP, share: float = SHARE
) -> xr.Dataset:
    """Compare an estimate with the exact sweep.

    `estimate` comes from `attribute_edges`, `integrate_edges` or `attribution.estimate`; `exact` from `patch_edges` or
    `patch`, over the same cells and prompts. `top` are numbers of largest effects, by size without sign, that are
    looked for. Signs are compared in cells whose exact effect is at least `share` of the largest one. Raises InputError
    where the results are over different cells, prompts, metrics or directions, or have one cell only.

    Returns:
        Over (direction, metric), NaN where it is not defined: `pearson`, `spearman` (correlations over cells; NaN
        where one side is constant), `sign_agreement` (share of the cells above the bound with the right sign),
        `n_above` (the number of these cells), `slope` (of the estimate on the exact effect, through the origin),
        `mean_absolute_error` (in the metric's unit) and `relative_error` (the same over the mean exact size). Over
        (direction, metric, top) too: `precision` (share of the n largest estimates that are among the n truly largest
        effects; NaN where fewer than n cells have an effect) and `jaccard` (intersection over union of these sets).
    """
    in_range("share", share, 0, 1)
    for n in top:
        in_range("a number in top", n, 1, float("inf"))
    for name in ("direction", "metric", "prompt", *exact.value.dims):
        same = name in estimate.value.dims and estimate[name].equals(exact[name])
        if not same:
            raise InputError(f"both results must be over the same {name}; make them with the same arguments")
    if not _cells(exact):
        raise InputError("both results must have several cells; sweep an axis")
    effects = [_moved(result).stack(cell=_cells(exact)) for result in (estimate, exact)]
    figures, precision = xr.apply_ufunc(
        lambda guess, truth: (_figures(guess, truth, share), np.array([_precision(guess, truth, n) for n in top])),
        *effects,
        input_core_dims=[["cell"], ["cell"]],
        output_core_dims=[["figure"], ["top"]],
        vectorize=True,
    )
    precision = precision.assign_coords(top=list(top))
    return xr.Dataset(
        {
            **{name: figures.isel(figure=i) for i, name in enumerate(_NAMES)},
            "precision": precision,
            "jaccard": precision / (2 - precision),
        },
        attrs={
            "estimate": f"gradient {estimate.attrs.get('gradient', '')}".strip(),
            "exact": exact.attrs.get("intervention", ""),
            "pairs": exact.attrs.get("pairs", ""),
            "n": exact.sizes["prompt"],
            "n_cells": effects[1].sizes["cell"],
            "share": share,
        },
    )


_NAMES = ("pearson", "spearman", "sign_agreement", "n_above", "slope", "mean_absolute_error", "relative_error")


def _cells(result: xr.Dataset) -> list[str]:
    return [str(dim) for dim in result.value.dims if dim not in ("direction", "metric", "prompt")]


def _moved(result: xr.Dataset) -> xr.DataArray:
    """Effects in the metric's unit, averaged over prompts."""
    noising = result.direction == "noising"
    return xr.where(noising, result.clean - result.value, result.value - result.corrupted).mean("prompt", skipna=False)


def _figures(guess: np.ndarray, truth: np.ndarray, share: float) -> np.ndarray:
    varied = all(np.ptp(effects) > NEGLIGIBLE * abs(effects).max() for effects in (guess, truth))
    above = (abs(truth) >= share * abs(truth).max()) & (truth != 0)
    error, size, square = abs(guess - truth).mean(), abs(truth).mean(), (truth**2).sum()
    return np.array(
        [
            np.corrcoef(guess, truth)[0, 1] if varied else np.nan,
            np.corrcoef(rankdata(guess), rankdata(truth))[0, 1] if varied else np.nan,
            (np.sign(guess) == np.sign(truth))[above].mean() if above.any() else np.nan,
            above.sum(),
            (guess * truth).sum() / square if square else np.nan,
            error,
            error / size if size else np.nan,
        ]
    )


def _precision(guess: np.ndarray, truth: np.ndarray, n: int) -> float:
    """Share of the n largest estimates whose exact effect is no smaller than the n-th largest one."""
    sizes = np.sort(abs(truth))[::-1]
    if len(sizes) < n or sizes[n - 1] <= NEGLIGIBLE * sizes[0]:
        return np.nan
    found = np.argsort(-abs(guess), kind="stable")[:n]
    return (abs(truth)[found] >= (1 - NEGLIGIBLE) * sizes[n - 1]).mean()
