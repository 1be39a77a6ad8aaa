"""What positions are called."""

import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.core import positions
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import Site
from mnemoscope.interventions.replacements import region
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

NAMES = ("x1", "y1", "x2")


def pattern(**coords) -> xr.DataArray:
    return xr.DataArray(np.zeros((2, 3)), dims=("head", "pos"), coords={"pos": [0, 1, 2], **coords})


def test_names_stand_beside_the_numbers_of_an_axis_of_positions():
    found = positions.add_position_names(pattern(), NAMES)
    assert found.pos.values.tolist() == [0, 1, 2]
    assert found.pos_name.values.tolist() == positions.axis_labels(found, "pos") == list(NAMES)
    assert positions.add_position_names(found.isel(pos=[2]), ("a", "b", "c")).pos_name.item() == "x2", (
        "those that are there stay"
    )
    assert positions.axis_labels(found.stack(cell=["head", "pos"]), "pos") == list(NAMES) * 2


@pytest.mark.parametrize("labels", [["x", "y", "z"], [0, 1, 3], [0.0, 1.0, 2.0]])
def test_an_axis_that_does_not_number_positions_is_left_alone(labels):
    result = pattern().assign_coords(pos=labels)
    assert positions.add_position_names(result, NAMES).identical(result)
    assert positions.add_position_names(pattern(), ()).identical(pattern())


def test_without_names_the_number_and_the_token_are_shown():
    assert positions.axis_labels(pattern(), "pos") == ["0", "1", "2"]
    texts = pattern(pos_token=("pos", ["The", " cat", "…"]))
    assert positions.axis_labels(texts, "pos") == ["0 The", "1 cat", "2 …"]
    assert positions.axis_labels(pattern(head=[4, 5]), "head") == ["4", "5"]


def test_axes_have_one_title():
    titles = [positions.axis_title(axis) for axis in ("pos", "key_pos", "key", "head", "source_token")]
    assert titles == ["position", "key position", "key position", "head", "source token"]


@pytest.mark.parametrize(("given", "meant"), [("y1", 1), (1, 1), ("1", 1), (-1, 2), ("-3", 0)])
def test_a_position_is_read_by_name_or_by_number(given, meant):
    assert positions.find_position(given, NAMES, 3, argument="--pos") == meant


@pytest.mark.parametrize(("given", "names"), [("x9", NAMES), ("y1", ()), (3, NAMES), ("-4", NAMES)])
def test_a_position_that_does_not_exist_is_refused(given, names):
    with pytest.raises(InputError, match="--pos must be"):
        positions.find_position(given, names, 3, argument="--pos")


def test_a_site_may_name_its_position():
    task = PermutationLookup(n_values=3)
    batch = task.enumerate(split="all").select(slice(2))
    activation = torch.zeros(2, 5, 4)
    here = region(Site(kind="resid_pre", layer=0, pos="x2"), batch, activation)
    assert here[0, :, 0].tolist() == [False, False, True, False, False]
    with pytest.raises(InputError, match=r"must be one of: x1, y1, x2, y2, x3, x, y, .*; got 'x9'"):
        region(Site(kind="resid_pre", layer=0, pos="x9"), batch, activation)
