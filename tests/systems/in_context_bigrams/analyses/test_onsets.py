import pytest
import xarray as xr

from mnemoscope.core.errors import InputError
from mnemoscope.systems.in_context_bigrams.analyses.order import at_step, onset, tracked


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
    with pytest.raises(InputError, match="mnemoscope track"):
        onset(None, "recall")
    with pytest.raises(InputError, match="must be one of: recall; got 'loss'"):
        onset(trajectory(recall=[0.0]), "loss")
    with pytest.raises(InputError, match="recall must be finite at every step"):
        onset(trajectory(recall=[0.0, float("nan")]), "recall")
