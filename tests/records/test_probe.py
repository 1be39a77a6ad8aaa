import numpy as np
import pytest
import xarray as xr

from mnemoscope.records.probe import (
    ERASED,
    LIMITS,
    NAMES,
    Probe,
    erase_figure,
    erase_table,
    figures,
    finding,
    notes,
    reading_figure,
    reading_table,
    tables,
)
from mnemoscope.records.record import MeasuredRuns
from tests.records.planted import along


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


def test_latents_that_are_read_beyond_every_control():
    coords = {"latent": ["token", "depth"], "against": ["shuffled", "untrained"], "site": ["L0", "L1"]}
    beyond = {("token", "shuffled", "L0"): 0.9, ("token", "shuffled", "L1"): 0.6, ("token", "untrained", "L1"): 0.5}
    dims = ("latent", "site")
    probes = xr.Dataset(
        {
            "selectivity": along(("latent", "against", "site"), (2, 2, 2), beyond, **coords),
            "score": along(dims, (2, 2), {("token", "L1"): 0.8}, latent=coords["latent"], site=coords["site"]),
            "chance": along(dims, (2, 2), {("token", "L1"): 0.3}, latent=coords["latent"], site=coords["site"]),
        }
    )
    assert finding(MeasuredRuns(results={"probes": probes}, options=Probe(), runs=[])) == (
        "Read best beyond the controls: token from L1 (0.75 [0.70, 0.80], chance 0.25). "
        "Not read anywhere beyond the controls: depth."
    )


def test_what_is_erased_has_a_table_a_figure_and_a_note_where_it_was(read, erased):
    both = MeasuredRuns(results={"probes": read, "erased": erased}, options=Probe(), runs=[])
    assert [table.name for table in tables(both)] == ["read", "erased"]
    assert [caption for caption, _ in figures(both)] == [
        "What a linear probe reads at position 8, and from a model before training, mean over seeds.",
        "Accuracy lost by erasing a latent at position 8, beyond what the control that costs more costs, mean over the "
        "seeds in which it is erased.",
    ]
    assert notes(both) == (ERASED, NAMES)
    alone = MeasuredRuns(results={"probes": read.isel(seed=[0])}, options=Probe(erase=False), runs=[])
    assert [table.name for table in tables(alone)] == ["read"]
    assert [caption for caption, _ in figures(alone)] == [
        "What a linear probe reads at position 8, and from a model before training."
    ]
    assert notes(alone) == (NAMES,)
    assert "It does not show that the model reads it there" in LIMITS[-1]  # which the first note goes on from
