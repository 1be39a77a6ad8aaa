"""Figures of an estimate against the exact sweep, by hand."""

import numpy as np
import pytest
import xarray as xr

from mnemoscope.analyses.estimates import approximation, attribute_edges, estimate
from mnemoscope.analyses.patching import patch, patch_edges
from mnemoscope.core.errors import InputError
from tests.split_hooks import random_pairs
from tests.support import foreign_model, reads_back


def result(noised, *, clean=0.0, **coords):
    """One metric and one prompt under noising; the effects are `clean - noised`."""
    value = np.array(noised, dtype=float)[None, None, :, None]
    return xr.Dataset(
        {
            "value": (("direction", "metric", "edge", "prompt"), value),
            "clean": (("metric", "prompt"), [[clean]]),
            "corrupted": (("metric", "prompt"), [[0.0]]),
        },
        coords={"direction": ["noising"], "metric": ["mine"], "edge": range(len(noised)), "prompt": [0], **coords},
    )


class TestByHand:
    # effects 4 0 -3 1 against 2 1 3 0.5
    found = approximation(result([-2, -1, -3, -0.5]), result([-4, 0, 3, -1]), top=(1, 2, 4)).isel(direction=0, metric=0)

    def test_errors(self):
        assert self.found.mean_absolute_error == pytest.approx((2 + 1 + 6 + 0.5) / 4)
        assert self.found.relative_error == pytest.approx(9.5 / 8)
        assert self.found.slope == pytest.approx((8 - 9 + 0.5) / 26)

    def test_correlations(self):
        assert self.found.pearson == pytest.approx(np.corrcoef([2, 1, 3, 0.5], [4, 0, -3, 1])[0, 1])
        assert self.found.spearman == pytest.approx(np.corrcoef([3, 2, 4, 1], [4, 2, 1, 3])[0, 1])

    def test_signs_above_the_bound(self):
        assert self.found.n_above == 3
        assert self.found.sign_agreement == pytest.approx(2 / 3)

    def test_the_largest(self):
        assert self.found.precision.sel(top=1) == 0  # the estimate has the third edge first
        assert self.found.precision.sel(top=2) == 1
        assert self.found.jaccard.sel(top=2) == 1
        assert np.isnan(self.found.precision.sel(top=4))  # three edges have an effect


def test_an_estimate_that_is_right_has_no_error():
    exact = result([1.0, -2.0, 0.5], clean=1.0)
    found = approximation(exact, exact, top=(1, 2)).isel(direction=0, metric=0)
    assert found.mean_absolute_error == 0
    for name in ("pearson", "spearman", "sign_agreement", "slope"):
        assert found[name] == pytest.approx(1)
    assert (found.precision == 1).all()


def test_half_of_the_largest():
    found = approximation(result([3, 2, 0, 0]), result([3, 0, 2, 0.1]), top=(2,)).isel(direction=0, metric=0)
    assert found.precision.item() == 0.5
    assert found.jaccard.item() == pytest.approx(1 / 3)


def test_of_effects_that_are_equal_any_will_do():
    found = approximation(result([0, 0, 3]), result([2, 2 + 1e-9, 2]), top=(1,)).isel(direction=0, metric=0)
    assert found.precision.item() == 1


def test_without_any_effect_nothing_is_defined_but_the_error():
    found = approximation(result([0, 1]), result([0, 0]), top=(1,)).isel(direction=0, metric=0)
    assert found.mean_absolute_error == 0.5
    for name in ("pearson", "spearman", "sign_agreement", "slope", "relative_error"):
        assert np.isnan(found[name])
    assert found.precision.isnull().all()


def test_of_edges_and_of_activations(tmp_path):
    model, pairs = foreign_model(), random_pairs()
    over = {"kind": "z", "over": ("layer", "pos", "head")}
    for estimated, exact in (
        (attribute_edges(model, pairs), patch_edges(model, pairs)),
        (estimate(model, pairs, **over), patch(model, pairs, **over)),
    ):
        found = approximation(estimated, exact)
        assert dict(found.sizes) == {"direction": 2, "metric": 1, "top": 4}
        assert found.notnull().all()
        assert found.attrs["n_cells"] == exact.value[0, 0, ..., 0].size
        assert found.attrs["estimate"] == "gradient in the unpatched run"
        assert reads_back(found, tmp_path / "result.nc")


@pytest.mark.parametrize(
    ("estimated", "words"),
    [
        (result([1, 2, 3]), "must be over the same edge"),
        (result([1, 2], prompt=[7]), "must be over the same prompt"),
        (result([1, 2], metric=["other"]), "must be over the same metric"),
        (result([1, 2]).rename(edge="path"), "must be over the same edge"),
    ],
)
def test_results_of_other_things_are_refused(estimated, words):
    with pytest.raises(InputError, match=words):
        approximation(estimated, result([1, 2]))


def test_one_cell_is_no_comparison():
    with pytest.raises(InputError, match="must have several cells; sweep an axis"):
        approximation(result([1]).isel(edge=0), result([1]).isel(edge=0))


@pytest.mark.parametrize(
    ("arguments", "words"), [({"top": (0,)}, "a number in top"), ({"share": 2.0}, "share must be")]
)
def test_wrong_arguments_are_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        approximation(result([1, 2]), result([1, 2]), **arguments)
