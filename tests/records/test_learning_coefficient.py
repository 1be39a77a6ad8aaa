import numpy as np
import pytest
import xarray as xr

from mnemoscope.analyses import half_way_step, steepest_step
from mnemoscope.records import learning_coefficient as record
from mnemoscope.records.record import GATE, MeasuredRuns

STEPS = [0, 10, 20, 40, 80]


def planted(first_rise: list[int], n_seeds: int = 8):
    """Coefficients that rise by step `first_rise`, one for each seed in turn, and a skill with its onset at 40."""
    seeds = list(range(n_seeds))
    rises = [first_rise[seed % len(first_rise)] for seed in seeds]
    estimate = np.array([[1.0 if step < rise else 9.0 for step in STEPS] for rise in rises])
    over = ("seed", "step")
    zeros = {name: (over, np.zeros_like(estimate)) for name in ("spread", "start_loss", *record.FLAGS)}
    axes = {"seed": seeds, "step": STEPS}
    found = xr.Dataset({"estimate": (over, estimate), **zeros}, coords=axes)
    copy = (over, np.array([[0.1, 0.1, 0.2, 0.9, 1.0]] * n_seeds))
    skills = xr.Dataset({"accuracy_copy": copy, "loss_copy": copy}, coords=axes)
    gate = xr.Dataset({"learned": (("seed", "skill"), np.ones((n_seeds, 1), bool))}, {"seed": seeds, "skill": ["copy"]})
    results = {"learning_coefficient": found, "skills": skills, GATE: gate}
    return MeasuredRuns(results=results, options=None, runs=[])


@pytest.mark.parametrize(
    ("rises", "words"),
    [([20], "the coefficient comes first."), ([80], "copy comes first."), ([20, 80], "neither comes first")],
)
def test_the_finding_says_which_comes_first(rises, words):
    said = record.finding(planted(rises))
    assert said.startswith("The coefficient of the last checkpoint is 9.0 [9.0, 9.0].")
    assert "of 8 seeds" in said
    assert words in said


def test_skills_that_no_seed_learned_have_no_order():
    measured = planted([20])
    measured.results[GATE].learned[:] = False
    assert "copy" not in record.finding(measured)


def test_few_seeds_decide_nothing():
    assert "neither comes first in most seeds, as far as these tell" in record.finding(planted([20], n_seeds=3))


def test_seeds_without_all_checkpoints_have_no_onset():
    measured = planted([20])
    found = measured.results["learning_coefficient"]
    found.estimate[1:, :-1] = np.nan
    events = record.onsets(measured.results)
    assert events["coefficient"].seed.values.tolist() == [0]
    assert [len(table.rows) for table in record.tables(measured)] == [3, 5, 3, 4]
    found.estimate[0, 0] = np.nan
    assert record.onsets(measured.results) is None
    assert record.finding(measured) == "The coefficient of the last checkpoint is 9.0 [9.0, 9.0]."
    assert len(record.tables(measured)) == 2


def test_a_coefficient_that_never_rises_has_no_onset():
    measured = planted([20])
    measured.results["learning_coefficient"].estimate[:] = 3.0
    events = record.onsets(measured.results)
    assert np.isnan(events["coefficient"]).all()
    assert np.isnan(events["coefficient, steepest"]).all()


def test_flags_are_counted_by_seed():
    measured = planted([20])
    measured.results["learning_coefficient"]["negative"][:2, 0] = 1.0
    rows = record.checkpoint_table(measured.results["learning_coefficient"]).rows
    assert [row[-1] for row in rows] == ["negative 2/8", *["none"] * 4]


def test_half_way_and_steepest():
    course = xr.DataArray(
        [[0.0, 1, 3, 2, 4], [4, 3, 1, 1, 0], [1, np.nan, 2, 3, 4]],
        coords={"seed": range(3), "step": STEPS},
        dims=("seed", "step"),
    )
    np.testing.assert_array_equal(half_way_step(course, direction="rise"), [20, np.nan, np.nan])
    np.testing.assert_array_equal(half_way_step(course, direction="fall")[1:], [20, np.nan])
    np.testing.assert_array_equal(steepest_step(course), [20, np.nan, np.nan])
