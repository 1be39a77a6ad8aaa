"""The check of `conftest` finds what it is for, and results that are selected from keep the numbers of their axes."""

import numpy as np
import pytest
import xarray as xr

from mnemoscope.analyses import attention_by_mechanism, compare_predictions, named_patterns
from mnemoscope.core.patterns import earlier
from tests.analyses.conftest import checked, unlabelled
from tests.support import random_model, seeded, small_spec

TASK = small_spec("v3").task
BATCH = TASK.monitor(5, split="test", generator=seeded())
MODEL = random_model(n_layers=3)


def test_axes_without_labels_are_found_in_whatever_is_returned():
    bare = xr.DataArray(np.zeros((2, 3)), dims=("layer", "skill"))
    assert unlabelled(bare) == {"layer"}
    assert unlabelled({"one": bare, "other": [bare.rename(skill="head").to_dataset(name="x")]}) == {"layer", "head"}
    assert unlabelled(bare.assign_coords(layer=[0, 1])) == set()
    with pytest.raises(AssertionError, match=r"gives axes without coordinates: \['layer'\]"):
        checked(lambda: bare)()
    assert checked(lambda given: given)(bare) is bare, "what was given without labels needs none"


@pytest.mark.parametrize("found", [named_patterns(MODEL, BATCH), named_patterns(MODEL, BATCH, [*"abcdefghijklmnop"])])
def test_patterns_that_are_selected_keep_their_numbers(found):
    some = found.isel(layer=[2], head=[1], example=[3, 4], query=slice(2, None))
    assert {axis: some[axis].values.tolist() for axis in ("layer", "head", "example")} == {
        "layer": [2], "head": [1], "example": [3, 4],
    }  # fmt: skip
    assert some["query"].values.tolist() == list(range(2, BATCH.inputs.shape[1]))


def test_axes_of_shares_and_of_predictions_are_numbered():
    shares = attention_by_mechanism(MODEL, BATCH, [earlier(period=1, phase=0, name="earlier")])
    assert shares.isel(query=[4], key=[1])["query"].values.tolist() == [4]
    assert shares.isel(query=[4], key=[1])["key"].values.tolist() == [1]
    compared = compare_predictions(MODEL, MODEL, TASK, BATCH)
    assert compared.isel(example=[2])["example"].values.tolist() == [2]
