"""The place of one model among seeds, by hand."""

import numpy as np
import pytest
import xarray as xr

from mnemoscope.analyses.originals import describe_rank, place_original
from mnemoscope.core.errors import InputError


def seeds(*values):
    return xr.DataArray(np.array(values, dtype=float), dims="seed")


@pytest.mark.parametrize(
    ("value", "others", "rank"),
    [
        (0.3, (0.1, 0.2, 0.4), 3),
        (0.0, (0.1, 0.2, 0.4), 1),
        (1, (0.1, 0.2, 0.4), 4),
        (1, (1, 1, 1, 1), 3),
        (1, (1, 0), 2),
    ],
)
def test_the_rank_counts_those_below_and_half_of_those_that_are_equal(value, others, rank):
    found = place_original(xr.DataArray(float(value)), seeds(*others))
    assert (int(found["rank"]), int(found["n"])) == (rank, len(others) + 1)
    assert float(found["mean"]) == pytest.approx(np.mean(others))
    assert (float(found["low"]), float(found["high"])) == (min(others), max(others))


def test_every_cell_of_a_result_has_its_place():
    original = xr.DataArray([0.0, 5.0], dims="head")
    others = xr.DataArray([[1.0, 2.0], [3.0, 4.0]], dims=("seed", "head"))
    assert place_original(original, others)["rank"].values.tolist() == [1, 3]
    with pytest.raises(InputError, match="must lie along"):
        place_original(original, others.rename(seed="draw"))


def test_ranks_in_words():
    assert describe_rank(5, 17) == "typical: rank 5 of 17"
    assert describe_rank(1, 17) == "beyond all seeds: rank 1 of 17"
    assert describe_rank(17, 17) == "beyond all seeds: rank 17 of 17"
