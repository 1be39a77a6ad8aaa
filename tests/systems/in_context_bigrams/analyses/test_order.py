import numpy as np
import pytest
import xarray as xr

from mnemoscope.core.errors import InputError
from mnemoscope.systems.in_context_bigrams.analyses.order import EVENTS, learning_order

STEPS = [0, 10, 20, 30]


def trajectories(**series):
    """Each series is two seeds' rows."""
    values = {name: (("seed", "step"), np.array(rows, float)) for name, rows in series.items()}
    return xr.Dataset(values, coords={"seed": [100, 101], "step": STEPS})


def test_memories_in_the_order_in_which_they_rise():
    found = learning_order(
        trajectories(first=[[0, 1, 1, 1], [0, 1, 1, 1]], second=[[0, 0, 1, 1], [0, 1, 1, 1]], third=[[0] * 4] * 2),
        events={"a": "first", "b": "second", "c": "third"},
    )
    assert found.onset.sel(event="a").values.tolist() == [10, 10]
    assert found.onset.sel(event="b").values.tolist() == [20, 10]
    assert found.order.values.tolist() == ["a < b; never: c", "a = b; never: c"]
    assert found.order_share.to_series().to_dict() == {"a < b; never: c": 0.5, "a = b; never: c": 0.5}
    assert found.before.sel(first="a", second="b") == 1
    assert found.never.sel(event="c") == 2


def test_losses_set_in_when_they_have_fallen_half_of_their_way():
    found = learning_order(
        trajectories(loss_global=[[4, 3.1, 3, 2], [4, 2, 2, 2]], loss_in_context=[[4, 4, 4, 1], [6, 6, 6, 0]]),
        events={"global": "loss_global", "in context": "loss_in_context"},
    )
    assert found.onset.sel(event="global").values.tolist() == [20, 10]
    assert found.onset.sel(event="in context").values.tolist() == [30, 30]
    assert found.commonest_order == "global < in context"
    assert found.commonest_share == 1


def test_every_event_is_a_measure_that_is_tracked():
    table = trajectories(**{name: [[0, 1, 1, 1]] * 2 for name in EVENTS.values()})
    assert learning_order(table).event.values.tolist() == list(EVENTS)


def test_one_run_is_no_set_of_seeds():
    one = trajectories(a=[[0, 0, 0, 1]] * 2).isel(seed=0, drop=True)
    with pytest.raises(InputError, match="must be along seed"):
        learning_order(one, events={"a": "a"})
    with pytest.raises(InputError, match="got 'b'"):
        learning_order(one.expand_dims(seed=[0]), events={"a": "a", "b": "b"})
