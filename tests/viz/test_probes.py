import numpy as np
import pytest
import xarray as xr

from mnemoscope.viz.probes import erase_figure, erase_table, reading_figure, reading_table


@pytest.fixture
def read():
    """Two seeds, two latents, three sites."""
    axes, shape = ("seed", "latent", "site"), (2, 2, 3)
    score = np.arange(12).reshape(shape) / 20
    return xr.Dataset(
        {
            "score": (axes, score),
            "chance": (axes, np.full(shape, 0.5)),
            "told": (axes, score * 2),
            "shuffled": (("draw", *axes), np.stack([score * 0, score * 0 + 0.5])),
            "control_score": (("control", *axes), score[None] / 2),
            "selectivity": (("against", *axes), np.stack([score, score / 2])),
            "unit": (("seed", "latent"), [["accuracy", "accuracy"]] * 2),
        },
        coords={
            "seed": [0, 1],
            "latent": ["slot", "value"],
            "site": ["other head", "L0 resid_mid", "L0 MLP"],
            "control": ["untrained"],
            "against": ["shuffled", "untrained"],
        },
        attrs={"pos": 8, "pos_name": "8"},
    )


@pytest.fixture
def erased():
    """Nothing is erased at the last site, and of the first latent at the first site in one seed only."""
    axes, shape = ("seed", "latent", "site", "skill"), (2, 2, 3, 2)
    there = np.ones(shape)
    there[:, :, 2] = there[0, 0, 0] = np.nan
    return xr.Dataset(
        {
            "accuracy": (axes, there * 0.2),
            "clean_accuracy": (axes, there),
            "random_accuracy": ((*axes, "draw"), there[..., None] * [0.7, 0.9]),
            "shuffled_accuracy": ((*axes, "draw"), there[..., None] * [0.5, 0.6]),
        },
        coords={
            "seed": [0, 1],
            "latent": ["slot", "value"],
            "site": ["other head", "L0 resid_mid", "L0 MLP"],
            "skill": ["elimination", "recall"],
        },
        attrs={"pos": 8, "pos_name": "8"},
    )


def test_rows_have_the_score_beside_its_controls(read):
    table = reading_table(read)
    rows = table.rows
    assert table.title == "what a linear probe reads at position 8"
    assert len(rows) == 6
    assert rows[1] == [
        "slot",
        "L0 resid_mid",
        "0.20 [0.05, 0.35]",
        "0.50 [0.50, 0.50]",
        "0.25 [0.25, 0.25]",
        "0.10 [0.03, 0.17]",
        "0.10 [0.03, 0.17]",
        "0.40 [0.10, 0.70]",
    ]
    assert len(table.header) == len(rows[0])
    assert table.header[-1] == "bits"


def test_the_header_says_which_scores_there_are(read):
    mixed = reading_table(read.assign(unit=(("seed", "latent"), [["accuracy", "R²"]] * 2)))
    assert (mixed.header[2], mixed.header[-1]) == ("accuracy or R²", "bits or R²")


def test_heatmaps_have_sites_below_each_other_and_latents_along(read):
    figure = reading_figure(read)
    assert [note.text for note in figure.layout.annotations] == ["trained", "before training"]
    assert list(figure.data[0].y) == ["other head", "L0 resid_mid", "L0 MLP"]
    assert list(figure.data[0].x) == ["slot", "value"]
    np.testing.assert_allclose(figure.data[0].z, read.score.mean("seed").T)
    np.testing.assert_allclose(figure.data[1].z, read.score.mean("seed").T / 2)


def test_rows_without_a_latent_stand_below_the_intact_model(erased):
    table = erase_table(erased)
    rows = table.rows
    assert len(table.header) == len(rows[0])
    intact, control = "1.00 [1.00, 1.00]", "–"
    assert rows[0] == ["nothing", "", "2", intact, control, control, intact, control, control]
    assert [row[:3] for row in rows[1:]] == [
        ["slot", "other head", "1"],
        ["slot", "L0 resid_mid", "2"],
        ["value", "other head", "2"],
        ["value", "L0 resid_mid", "2"],
    ]
    assert rows[2][3:6] == ["0.20 [0.20, 0.20]", "0.80 [0.80, 0.80]", "0.55 [0.55, 0.55]"]


def test_the_heatmap_has_what_is_lost_beyond_the_control_that_costs_more(erased):
    figure = erase_figure(erased)
    assert [note.text for note in figure.layout.annotations] == ["elimination", "recall"]
    z = np.asarray(figure.data[0].z, dtype=float)
    np.testing.assert_allclose(z[:2], 0.35)
    assert np.isnan(z[2]).all()
