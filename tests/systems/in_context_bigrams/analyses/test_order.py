import numpy as np
import pytest
import xarray as xr

from mnemoscope.core.errors import InputError
from mnemoscope.systems.in_context_bigrams.analyses.trajectory import EVENTS, at_step, learning_order, onset, tracked

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


def trajectory(**series):
    (n,) = {len(values) for values in series.values()}
    steps = [0, 5, 10, 20, 40][:n]
    return xr.Dataset({name: ("step", values) for name, values in series.items()}, coords={"step": steps})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.5, 0.4, 0.5, 1.0], 20),  # the first .5 does not last
        ([0.6, 0.7, 0.8, 0.9, 1.0], 0),
        ([0.0, 0.0, 0.0, 0.0, 0.9], 40),
        ([0.0, 0.9, 0.9, 0.9, 0.4], 41),
        ([0.0, 0.0, 0.0, 0.0, 0.0], 41),
    ],
)
def test_first_step_from_which_it_stays(values, expected):
    assert onset(trajectory(recall=values), "recall") == expected


def test_threshold_and_direction():
    falling = trajectory(loss=[3.0, 2.5, 2.0, 1.5])
    assert onset(falling, "loss", 2.2, direction="fall") == 10
    assert onset(falling, "loss", 1.0, direction="fall") == 21
    assert onset(falling, "loss", 1.0) == 0


def test_one_step():
    found = trajectory(recall=[0.0, 0.25, 0.5])
    assert at_step(found, "recall", 5) == 0.25
    assert tracked(found, "recall").to_numpy().tolist() == [0.0, 0.25, 0.5]
    with pytest.raises(InputError, match="a kept step must be one of: 0, 5, 10; got 7"):
        at_step(found, "recall", 7)


def test_what_was_not_tracked_is_refused():
    with pytest.raises(InputError, match="mnemoscope evaluate --checkpoints"):
        onset(None, "recall")
    with pytest.raises(InputError, match="must be one of: recall; got 'loss'"):
        onset(trajectory(recall=[0.0]), "loss")
    with pytest.raises(InputError, match="recall must be finite at every step"):
        onset(trajectory(recall=[0.0, float("nan")]), "recall")
