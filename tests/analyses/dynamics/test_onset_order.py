import numpy as np
import pytest
import xarray as xr
from scipy.stats import friedmanchisquare

from mnemoscope.analyses.dynamics.onset_order import order_of_onsets
from mnemoscope.core.errors import InputError

NAN = float("nan")


def onsets(values, seeds=None):
    return xr.DataArray(values, dims="seed", coords={"seed": range(len(values)) if seeds is None else seeds})


def counts(result, first, second):
    pair = result.sel(first=first, second=second)
    return tuple(int(pair[name]) for name in ("before", "tie", "neither"))


def test_pairs_ties_and_censored_seeds_by_hand():
    result = order_of_onsets(
        {"elimination": onsets([50, 60, 70, 100, NAN, NAN]), "recall": onsets([300, NAN, 60, 100, 20, NAN])}
    )
    assert counts(result, "elimination", "recall") == (2, 1, 1)  # seeds 0 and 1; 3; 5
    assert counts(result, "recall", "elimination") == (2, 1, 1)  # seeds 2 and 4
    assert float(result.share.sel(first="elimination", second="recall")) == pytest.approx(2 / 6)
    assert result.never.sel(event="recall") == 2
    assert result.order.values.tolist() == [
        "elimination < recall",
        "elimination; never: recall",
        "recall < elimination",
        "elimination = recall",
        "recall; never: elimination",
        "never: elimination, recall",
    ]


def test_an_order_that_all_seeds_share():
    times = {"W_O": [10] * 16, "W_K2": [20 + n for n in range(16)], "W_K1": [40] * 16}
    result = order_of_onsets({name: onsets(values) for name, values in times.items()})
    assert (result.commonest_order, result.commonest_share, result.concordance) == ("W_O < W_K2 < W_K1", 1, 1)
    first = result.sel(first="W_O", second="W_K1")
    assert (first.share, first.high) == (1, 1)
    assert float(first.low) == pytest.approx(0.025 ** (1 / 16))  # Clopper-Pearson at n of n
    assert result.share.sel(first="W_K1", second="W_O") == 0
    assert result.attrs["n"] == 16


def test_the_diagonal_says_nothing():
    result = order_of_onsets({"a": onsets([1.0, NAN]), "b": onsets([2.0, 3.0])})
    for name, nothing in (("before", 0), ("tie", 0), ("neither", 0)):
        assert np.diag(result[name]).tolist() == [nothing] * 2
    assert np.isnan(np.diag(result.share)).all()


def test_onsets_closer_than_the_checkpoints_are_a_tie():
    times = {"a": onsets([100, 100, 100]), "b": onsets([120, 125, 126])}
    assert counts(order_of_onsets(times), "a", "b") == (3, 0, 0)
    close = order_of_onsets(times, within=25)
    assert counts(close, "a", "b") == (1, 2, 0)
    assert close.order.values.tolist() == ["a = b", "a = b", "a < b"]
    assert (close.commonest_order, float(close.commonest_share)) == ("a = b", pytest.approx(2 / 3))


def test_concordance_is_that_of_friedman():
    times = np.random.default_rng(0).integers(0, 6, (12, 4)).astype(float)  # with ties
    result = order_of_onsets({name: onsets(times[:, i]) for i, name in enumerate("abcd")})
    assert float(result.concordance) == pytest.approx(friedmanchisquare(*times.T).statistic / (12 * 3))


def test_concordance_of_two_events():
    """(before - after)^2 / n^2 without ties: 7 of 8 against 1 of 8."""
    result = order_of_onsets({"a": onsets([1] * 7 + [3]), "b": onsets([2] * 8)})
    assert float(result.concordance) == pytest.approx((6 / 8) ** 2)
    assert np.isnan(order_of_onsets({"a": onsets([1, 1]), "b": onsets([1, 1])}).concordance)


def test_seeds_without_an_order_in_common_have_a_low_concordance():
    times = np.random.default_rng(0).random((200, 5))
    result = order_of_onsets({name: onsets(times[:, i]) for i, name in enumerate("abcde")})
    assert float(result.concordance) < 0.05
    shares = result.share.values[~np.eye(5, dtype=bool)]
    assert np.abs(shares - 0.5).max() < 0.15


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ({"a": onsets([1.0])}, "at least two events; got 1"),
        ({"a": onsets([1.0, 2.0]), "b": onsets([1.0])}, "those of b are over others"),
        ({"a": onsets([1.0, 2.0]), "b": onsets([1.0, 2.0], [1, 0])}, "those of b are over others"),
        ({"a": onsets([1.0, 2.0], [4, 4]), "b": onsets([1.0, 2.0], [4, 4])}, "each once"),
        ({"a": onsets([1.0]).rename(seed="run"), "b": onsets([1.0])}, "onsets of a must be over seed"),
        ({"a": onsets([]), "b": onsets([])}, "onsets of a must be over seed"),
    ],
)
def test_what_is_refused(events, message):
    with pytest.raises(InputError, match=message):
        order_of_onsets(events)
