"""A published model beside the seeds that were trained like it: its place among them, value by value.

The rank of a value counts the seeds below it, and half of those that are equal, from 1: with 16 seeds the smallest is
1 of 17 and the largest 17 of 17. If the original were one more seed, every rank would be as likely. Ranks at either end
say that no seed lies beyond the original; with 16 seeds that happens by chance in 2 of 17 values.

*Shows* whether the published model is typical of its recipe. *Does not show* why it is not: its recipe, its data or its
seed. It is no replicate, and enters no verdict.
"""

import xarray as xr

from mnemoscope.core.errors import InputError


def place_original(original: xr.DataArray, replicates: xr.DataArray, *, over: str = "seed") -> xr.Dataset:
    """The place of an original among replicates, for each number of a result.

    Args:
        original: The result of an analysis of one model.
        replicates: The same result along `over` too, as `ms.analyses.over_seeds` gives it.
        over: Dimension of the replicates.

    Returns:
        Over the dimensions of the original: its `value`; `mean`, `low` and `high` of the replicates; and `rank`, from 1
        to `n`, the number of replicates and the original.

    Raises:
        InputError: The replicates have no such dimension, or another beside those of the original.

    >>> seeds = xr.DataArray([0.1, 0.2, 0.4], coords={"seed": [1, 2, 3]})
    >>> int(ms.analyses.place_original(xr.DataArray(0.3), seeds)["rank"])
    3
    """
    if {*replicates.dims} != {*original.dims, over}:
        raise InputError(f"replicates must lie along {(*original.dims, over)}; got {replicates.dims}")
    below, equal = (replicates < original).sum(over), (replicates == original).sum(over)
    return xr.Dataset(
        {
            "value": original,
            "mean": replicates.mean(over),
            "low": replicates.min(over),
            "high": replicates.max(over),
            "rank": 1 + below + equal // 2,
            "n": replicates.notnull().sum(over) + 1,
        },
        attrs=original.attrs,
    )


def describe_rank(rank: int, n: int) -> str:
    """The rank in words: `typical: rank 5 of 17`, or `beyond all seeds` where it is the first or the last.

    >>> ms.analyses.describe_rank(5, 17)
    'typical: rank 5 of 17'
    """
    words = "beyond all seeds" if rank in (1, n) else "typical"
    return f"{words}: rank {rank} of {n}"
