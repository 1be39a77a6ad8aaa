"""Tables of two models beside each other."""

import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses.comparison import compare_predictions
from mnemoscope.core.presets import preset
from mnemoscope.report.comparison import N_PLACES, agreement_table, change_text, places_table, specification_table
from mnemoscope.report.tables import format_ranges
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import Predictor, seeded

TASK = PermutationLookup(repeat_ratio=0.5).for_seed(0)
NAMES = ("one", "other")


@pytest.fixture(scope="module")
def found():
    batch = TASK.monitor(40, split="test", generator=seeded())
    return compare_predictions(Predictor(TASK, "bayes"), Predictor(TASK, "recall"), TASK, batch)


def test_places_are_those_that_differ_most(found):
    table = places_table(found, TASK, NAMES, "seed 0")
    assert len(table.rows) == N_PLACES
    apart = [float(row[4]) - float(row[5]) for row in table.rows]
    assert apart == sorted(apart, reverse=True)
    for sequence, answer, guess, _, p_one, p_other in table.rows:
        tokens = torch.tensor([[int(token) for token in sequence.split()]])
        assert guess == f"{answer} 1.00"
        assert (float(p_one), float(p_other)) == (1.0, 0.2)  # elimination: recall alone guesses among five
        assert tokens.shape == (1, 9)
        assert int(tokens[0, -1]) not in tokens[0, :-1:2].tolist()


def test_models_that_do_not_differ_have_no_places(found):
    same = found.sel(model=["first", "first"]).assign_coords(model=["first", "second"])
    table = places_table(same, TASK, NAMES, "seed 0")
    assert table.rows == []
    assert "nowhere" in table.title


def test_shares_of_the_outcomes_add_up(found):
    table = agreement_table(found, NAMES, "seed 0")
    assert table.header == ("skill", "both", "one only", "other only", "neither", "same guess")
    for row in table.rows:
        assert sum(map(float, row[1:5])) == pytest.approx(1, abs=2e-3)


def test_what_is_equal_is_no_row():
    one, other = preset("v3"), preset("v3", changes={"model.d_model": 64})
    table = specification_table(one, other, NAMES, {"seed": (0, 0), "step": ("60", "30")})
    assert table.rows == [["step", "60", "30"], ["model.d_model", "32", "64"]]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.5, 0.25, 0.75), "+0.500 [+0.250, +0.750]"),
        ((-0.5, np.nan, np.nan), "-0.500"),
        ((np.nan, np.nan, np.nan), "–"),
    ],
)
def test_a_difference_has_a_sign_and_an_interval(values, text):
    assert change_text(xr.DataArray(list(values), coords={"summary": ["mean", "low", "high"]})) == text


def test_whole_numbers_are_ranges():
    assert format_ranges([7, 0, 1, 2, 3]) == "0–3, 7"
    assert format_ranges([]) == ""
