"""`mnemoscope prompts stability` on the packaged language model: its prompts, its circuits, and what is too dear."""

import pytest
import xarray as xr

import mnemoscope as ms
from mnemoscope.analyses.discovery import searches
from mnemoscope.cli import main
from mnemoscope.systems.language_models.families import FAMILIES

pytestmark = pytest.mark.lm
COMMAND = ["prompts", "stability", "--n", "2", "--n-draws", "2", "--n-random", "3"]


@pytest.fixture
def loaded(model, monkeypatch, tmp_path):
    monkeypatch.setattr(ms.models, "named_language_model", lambda source, **options: model)
    monkeypatch.chdir(tmp_path)


def lead(model, batch, answer, foil):
    logits = model(batch.inputs)[batch.scored]
    return (logits.gather(1, answer[batch.scored][:, None]) - logits.gather(1, foil[batch.scored][:, None]))[:, 0]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_answer_leads_further_on_the_clean_side(family, model):
    """In every family the model tells the sides apart, so that there is a circuit to be found."""
    pairs = FAMILIES[family].draw(model, 8, 0)
    clean, corrupted = (lead(model, side, pairs.answer, pairs.foil) for side in (pairs.clean, pairs.corrupted))
    assert (clean - corrupted).mean() > 1


def test_the_circuit_of_one_draw_overlaps_with_that_of_another_beyond_chance(loaded, tmp_path, monkeypatch):
    monkeypatch.setattr(searches, "_growing_sizes", lambda n_edges: [0, 400, 1600, 6400, n_edges])  # a few of 66
    main([*COMMAND, "--searches", "eap", "--max-seconds", "inf", "--out", "out"])
    found = xr.load_dataset(tmp_path / "out/stability.nc", engine="h5netcdf")
    usual = found.sel(change="other prompts")
    assert (usual.n_edges > 100).all()
    assert float(usual.jaccard) > 1.5 * float(usual.by_chance)
    assert (tmp_path / "out/stability.html").is_file()


def test_a_search_of_every_edge_is_refused_with_its_circuits(loaded, capsys):
    with pytest.raises(SystemExit):
        main([*COMMAND, "--searches", "greedy"])
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert "runs 141,302 circuits of a graph with 70,651 edges" in message
