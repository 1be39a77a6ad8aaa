"""The change of a loss and its plateau, on courses that are known."""

import math

import numpy as np
import pytest
import xarray as xr

from mnemoscope.systems.induction_formation.analyses.courses import PLATEAU, change, plateau

STEPS = np.arange(0, 1001, 10)


def course(delay, width, *, start=PLATEAU):
    values = PLATEAU * np.exp(-(STEPS - delay).clip(min=0) / width)
    values[0] = start
    return xr.DataArray(values, coords={"step": STEPS})


@pytest.mark.parametrize(("delay", "width"), [(0, 100), (0, 300), (200, 100), (600, 50)])
def test_delay_and_width_are_found(delay, width):
    found, loss = plateau(course(delay, width, start=1.9)), course(delay, width)
    assert change(loss) == pytest.approx(delay + width * math.log(2), abs=1)
    assert found["delay"] == pytest.approx(delay, abs=10)
    assert found["width"] == pytest.approx(width, rel=0.15)
    assert found["share"] == pytest.approx(delay / (delay + width * math.log(2)), abs=0.06)


def test_a_smooth_course_gains_nothing_by_a_change_point():
    assert plateau(course(0, 200))["gain"] < 0.5 < plateau(course(500, 50))["gain"]


def test_a_change_that_did_not_come_counts_as_late():
    flat = xr.DataArray(np.full(len(STEPS), PLATEAU), coords={"step": STEPS})
    assert change(flat) == 2000
    assert change(course(0, 100), level=0.001) > change(course(0, 100), level=0.5)
    assert change(flat * 0) == 0


@pytest.mark.parametrize(("delay", "width"), [(0, 100), (200, 100)])
def test_the_fall_to_log_2_is_a_wait_unless_the_course_starts_there(delay, width):
    first = xr.DataArray([1.9, 1.5, 1.2, 0.9], coords={"step": range(0, 40, 10)})
    then = course(delay, width)
    whole = xr.concat([first, then.assign_coords(step=then.step + 40)], "step")
    capped, near = plateau(whole), plateau(whole, near=0.1)
    assert near == plateau(then)
    assert capped["delay"] == pytest.approx(near["delay"] + 40, abs=10)


def test_a_loss_that_is_never_near_log_2_has_no_plateau():
    flat = xr.DataArray(np.full(len(STEPS), 1.8), coords={"step": STEPS})
    assert plateau(flat, near=0.1)["share"] == 0
