"""The spread of a measure by its sources: families, their variants, draws of noise, and draws of prompts.

The model is nested, y = family + variant + noise + prompts. The variance of each source is that of means at its level,
less what the levels below add to it (method of moments; below 0 counts as 0). Variants are a program with its noised
and padded forms, or runs of one configuration; noise is drawn again for the forms that have any.

`fixed` is the standard error of the mean over the families that were tried, were noise and prompts drawn anew. The
interval of `summarise` is for other families of this kind, and holds all sources.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from jaxtyping import Float

SOURCES = ("families", "variants", "noise", "prompts")
_MEASURES = ("auroc", "CPR", "CMD")


def variance_components(tried: xr.DataTree) -> xr.Dataset:
    """Standard deviations by source for AUROC, CPR and CMD, edges ranked by size.

    Returns each measure over (finder, source), in its unit, NaN where no source of the kind was drawn twice; and
    `<measure>_fixed` over finder.

    >>> found = ms.methods.variance_components(ms.methods.try_methods(["induction"], ["eap", "random"], n=8, n_draws=2))
    >>> found.auroc.sel(source="prompts").dims
    ('finder',)
    """
    children = [child.to_dataset() for child in tried.children.values()]
    finders = children[0].finder.values.tolist()
    found: dict[str, list[list[float]]] = {name: [] for name in _MEASURES}
    for finder in finders:
        for name in _MEASURES:
            found[name].append(_of_method(children, finder, name))
    arrays = {name: np.array(rows) for name, rows in found.items()}
    return xr.Dataset(
        {
            **{name: (("finder", "source"), values[:, :-1]) for name, values in arrays.items()},
            **{f"{name}_fixed": ("finder", values[:, -1]) for name, values in arrays.items()},
        },
        coords={"finder": finders, "source": list(SOURCES)},
    )


def _of_method(children: Sequence[xr.Dataset], finder: str, measure: str) -> list[float]:
    """Standard deviations of a measure by source, and the standard error with these families."""
    cells: dict[str, dict[str, list[np.ndarray]]] = {}
    for each in children:
        values = each[measure].sel(finder=finder, ranking="absolute").values
        if not np.isnan(values).any():
            cells.setdefault(each.attrs["family"], {}).setdefault(each.attrs["circuit"], []).append(values)
    return by_source([[np.stack(values) for values in family.values()] for family in cells.values()])


def by_source(families: Sequence[Sequence[Float[np.ndarray, "noise prompts"]]]) -> list[float]:
    """Standard deviations in the order of `SOURCES`, then the standard error of the mean with these families.

    `families` hold the values of each of their circuits over draws.
    """
    circuits = [values for family in families for values in family]
    prompts = _variance([row.var(ddof=1) for values in circuits for row in values if len(row) > 1])
    noise = _variance([v.mean(1).var(ddof=1) - _known(prompts) / v.shape[1] for v in circuits if len(v) > 1])

    def of_mean(values: np.ndarray) -> float:
        return (_known(prompts) / values.shape[1] + _known(noise) * (len(values) > 1)) / len(values)

    below = [np.mean([of_mean(values) for values in family]) for family in families]
    means = [np.array([values.mean() for values in family]) for family in families]
    variants = _variance([each.var(ddof=1) - low for each, low in zip(means, below, strict=True) if len(each) > 1])
    within = [(_known(variants) * (len(each) > 1) + low) / len(each) for each, low in zip(means, below, strict=True)]
    of_families = np.array([each.mean() for each in means])
    between = _variance([float(of_families.var(ddof=1) - np.mean(within))] if len(of_families) > 1 else [])
    drawn = [low / len(each) for each, low in zip(means, below, strict=True)]
    fixed = float(sum(drawn)) / len(drawn) ** 2 if drawn and not np.isnan(prompts) else np.nan
    return np.sqrt(np.array([between, variants, noise, prompts, fixed])).tolist()


def _variance(values: Sequence[float]) -> float:
    """The mean of estimates of a variance, at least 0; NaN where there is none."""
    return max(float(np.mean(values)), 0.0) if values else np.nan


def _known(variance: float) -> float:
    return 0.0 if np.isnan(variance) else variance
