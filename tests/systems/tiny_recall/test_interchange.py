import numpy as np
import pytest
import xarray as xr

from mnemoscope.records import MeasuredRuns
from mnemoscope.systems.tiny_recall.records import (
    PLACE_HEADER,
    SCORE_HEADER,
    VARIABLE_HEADER,
    Interchange,
    finding,
    place_rows,
    score_figure,
    score_rows,
    seed_header,
    seed_rows,
    variable_rows,
)

CAUSAL = ["elimination and recall", "values and match"]


def compared(scores, places=("L0H0", "L0H1")) -> xr.Dataset:
    """Seeds whose values lie at the given places; accuracies are those of the second seed's scores."""
    n, axes = len(scores), ("seed", "variable", "over")
    iia = np.array(scores)[:, [0, 0, 1, 1], None] * np.ones(3)
    return xr.Dataset(
        {
            "score": (("seed", "causal"), scores),
            "selection_score": (("seed", "causal"), np.array(scores) / 2),
            "follows": ("seed", np.linspace(0.9, 1, n)),
            "iia": (axes, iia),
            **{name: (axes, 0 * iia + i / 10) for i, name in enumerate(("before_iia", "other_iia", "arbitrary_iia"))},
            "random_iia": (("draw", *axes), np.stack([0 * iia, 0 * iia + 0.5])),
        },
        coords={
            "seed": range(3, 3 + n),
            "causal": CAUSAL,
            "variable": ["eliminated", "recalled", "values", "match"],
            "over": ["all", "changing", "kept"],
            "causal_model": ("variable", [CAUSAL[0]] * 2 + [CAUSAL[1]] * 2),
            "place": (("seed", "variable"), [[place] * 4 for place in places]),
        },
    )


@pytest.fixture
def both():
    return compared([[0.3, 0.9], [0.5, 0.4]]), compared([[0.1, 0.1], [0.2, 0.3]])


def test_scores_say_which_causal_model_is_the_better_one(both):
    rows = score_rows(*both)
    assert rows[0] == ["trained", CAUSAL[0], "0.400 [0.300, 0.500]", "0.200 [0.150, 0.250]", "1/2"]
    assert [row[-1] for row in rows] == ["1/2", "1/2", "0/2", "1/2"]  # equal scores are nobody's
    assert len(rows[0]) == len(SCORE_HEADER)


def test_the_better_one_in_a_sentence(both):
    expected = "values and match scores highest (0.65 [0.40, 0.90]), higher than the other in 1 of 2 seeds."
    trained = MeasuredRuns(results={"interchange": both[0]}, options=Interchange(), runs=[])
    assert finding(trained).endswith(expected)


def test_variables_stand_beside_their_controls(both):
    rows = variable_rows(*both)
    assert len(rows) == 12
    assert len(rows[0]) == len(VARIABLE_HEADER)
    assert rows[7][:4] == [CAUSAL[1], "values", "changing", "0.65 [0.40, 0.90]"]
    assert rows[8][7] == "–"  # kept pairs have no arbitrary answer
    assert [cell[:4] for cell in rows[7][4:]] == ["0.00", "0.10", "0.25", "0.20", "0.20"]


def test_places_are_counted_over_seeds(both):
    rows = place_rows(both[0])
    assert rows[:2] == [[CAUSAL[0], "eliminated", "L0H0", "1"], [CAUSAL[0], "eliminated", "L0H1", "1"]]
    alike = both[0].assign_coords(place=("variable", ["other head"] * 4))
    assert place_rows(alike)[-1] == [CAUSAL[1], "match", "other head", "2"]
    assert len(rows[0]) == len(PLACE_HEADER)


def test_every_seed_has_its_scores(both):
    rows = seed_rows(*both)
    assert rows[1] == ["4", "0.500", "0.400", "0.200", "0.300", "1.000"]
    assert len(seed_header(both[0])) == len(rows[0])


def test_a_line_is_a_network_from_one_causal_model_to_the_other(both):
    figure = score_figure(*both)
    assert [trace.name for trace in figure.data] == ["trained", "trained", "untrained", "untrained"]
    np.testing.assert_allclose(figure.data[0].y, [0.3, 0.9])
    assert list(figure.layout.xaxis.ticktext) == CAUSAL
    places = np.array([trace.x for trace in figure.data])
    assert len(np.unique(places[:, 0])) == 4
    assert (abs(places - [0, 1]) < 0.4).all()
