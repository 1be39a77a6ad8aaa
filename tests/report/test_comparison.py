"""Tables of two models beside each other."""

import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses.comparison import compare_predictions
from mnemoscope.core.presets import preset
from mnemoscope.report.comparison import (
    N_PLACES,
    agreement_table,
    change_text,
    describe_comparison,
    places_table,
    specification_table,
)
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


def _change(means: dict[str, tuple[float, float, float]], measure: str = "accuracy", paired: int = 2) -> xr.Dataset:
    values = np.array(list(means.values())).T
    coords = {"summary": ["mean", "low", "high"], "skill": list(means)}
    return xr.Dataset({measure: (("summary", "skill"), values)}, coords=coords, attrs={"paired": paired})


def _gate(learned: dict[str, list[bool]]) -> xr.Dataset:
    values = np.array(list(learned.values())).T
    return xr.Dataset({"learned": (("seed", "skill"), values)}, coords={"skill": list(learned)})


def test_the_finding_names_skills_that_differ_and_those_that_were_learned():
    """A page of tables left the reader to search for the difference."""
    change = _change({"one_hop": (-0.5, -0.6, -0.4), "copy": (0.2, -0.1, 0.5), "recall": (0.004, 0.003, 0.005)})
    gates = [
        _gate({"one_hop": [True, True], "copy": [True, False]}),
        _gate({"one_hop": [False] * 2, "copy": [True] * 2}),
    ]
    assert describe_comparison(change, gates, NAMES) == (
        "other against one: accuracy -0.500 [-0.600, -0.400] at one hop (mean over 2 seeds that both have, in pairs). "
        "No difference of 0.01 or more is established at copy and recall. "
        "Learned, better than a constant guess and the exact baselines: one one hop in 2 of 2 seeds, copy in 1 of 2 "
        "seeds; other one hop in none of 2 seeds, copy in 2 of 2 seeds."
    )


def test_without_an_interval_the_difference_itself_counts():
    change = _change({"recall": (0.3, np.nan, np.nan), "new": (np.nan,) * 3}, measure="loss", paired=0)
    said = describe_comparison(change, [_gate({"recall": [True]}), _gate({"recall": [False]})], NAMES)
    assert said.startswith("other against one: loss +0.300 at recall (one seed each). Learned")
    assert "other nothing in 1 seed." in said


def test_where_neither_learned_anything_the_numbers_do_not_tell_how_it_is_done():
    change = _change({"recall": (0.0, -0.1, 0.1)}, paired=0)
    said = describe_comparison(change, [_gate({"recall": [False] * 2}), _gate({"recall": [False] * 3})], NAMES)
    assert said.startswith("No difference of 0.01 or more is established at recall (means over 2 and 3 seeds).")
    assert said.endswith(
        "one nothing in 2 seeds; other nothing in 3 seeds. So these numbers do not tell how the task is done."
    )
