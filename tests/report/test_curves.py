"""When measures set in, from curves whose onset is known."""

import numpy as np
import xarray as xr

from mnemoscope.report.curves import onset_table, skill_curves, skills_in, trajectory_curves

STEPS = [0, 10, 20, 30]


def curves(**measures):
    return xr.Dataset(
        {name: (("seed", "step"), np.array(values)) for name, values in measures.items()},
        coords={"seed": [3, 4], "step": STEPS},
    )


def test_onsets_are_means_over_the_seeds_that_get_there():
    table = onset_table(
        curves(
            accuracy_in_context=[[0, 0.4, 0.6, 0.9], [0, 0.1, 0.2, 0.5]],
            induction_score=[[0, 0.8, 0.2, 0.3], [0, 0.1, 0.7, 0.7]],  # of the first it does not stay
            loss_global=[[4.0, 3.1, 2.5, 2.0], [4.0, 2.9, 2.5, 2.0]],
            recall_copied_token=[[np.nan] * 4] * 2,
            accuracy_first=[[0.0] * 4] * 2,
        )
    )
    assert {row[0]: row[2:4] for row in table.rows} == {
        "accuracy in context": ["25 [20, 30]", "2/2"],
        "induction score": ["20", "1/2"],
        "loss global": ["15 [10, 20]", "2/2"],
        "accuracy first": ["never", "0/2"],
    }
    assert table.rows[0][4] == "0.700 [0.500, 0.900]"


def test_many_measures_that_never_set_in_stand_in_one_row():
    flat = {f"path_{i}": [[0.0, 0.0, 0.0, i / 100]] * 2 for i in range(25)}
    beside = {"accuracy": [[0, 0, 1, 1]] * 2, "loss": [[2, 3, 2, 3]] * 2}
    table = onset_table(curves(**flat, **beside))
    assert [row[0] for row in table.rows] == ["accuracy", "loss", "25 others"]
    assert table.rows[1][2] == "never"
    assert table.rows[2][1:] == ["–", "never", "0/2", "at most 0.240"]
    del flat["path_0"]
    assert len(onset_table(curves(**flat, **beside)).rows) == 26


def test_curves_have_a_line_per_seed_and_measure():
    measures = curves(
        train_loss=[[1, 2, 3, 4]] * 2, test_loss=[[1] * 4] * 2, test_a=[[0.5] * 4] * 2, test_loss_a=[[1] * 4] * 2
    )
    assert skills_in(measures) == ["a"]
    assert [trace.name for trace in skill_curves(measures).data] == ["training"] * 2 + ["unseen"] * 2 + ["a"] * 2
    figure = trajectory_curves(measures, {"one": ("test_a",), "two": ("test_a", "train_loss")})
    assert [(trace.name, trace.xaxis) for trace in figure.data[::2]] == [
        ("test a", "x"),
        ("test a", "x2"),
        ("train loss", "x2"),
    ]
