"""`mnemoscope truncate` beyond what all commands that take models apart have in common."""

import csv

import pytest
import xarray as xr

from mnemoscope.cli import main
from mnemoscope.cli.parse import parse
from mnemoscope.core.presets import preset
from mnemoscope.records.truncate import measure
from mnemoscope.training.loop import train

SHORT = {"recipe.n_steps": 4, "recipe.warmup_steps": 1, "recipe.checkpoint_steps": (), "task.length": 16}


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """A model of noisy recall after a few steps."""
    return train(preset("noisy-recall", "quick", 0, changes=SHORT), tmp_path_factory.mktemp("noisy") / "run")


@pytest.mark.full
@pytest.mark.usefixtures("as_installed")
def test_noise_token_and_output_stand_beside_the_skills(noisy, tmp_path, capsys):
    main(["truncate", str(noisy.path), "--n", "32", "--ranks", "0", "64", "--out", str(tmp_path)])
    (place,) = tmp_path.glob("noisy-recall*/truncate")
    found = xr.open_dataset(place / "truncation.nc")
    assert found.target.values.tolist() == ["in_context", "noise", "global", "noise_token", "output"]
    assert found.weight.values.tolist() == ["L1 W_in", "L1 W_out", "L1 W_in + L1 W_out"]
    ends = found.context_share.sel(part="top", rank=64)
    assert (ends == found.clean_context_share).all()
    _, *rows = csv.reader((place / "removed.csv").open())
    assert len(rows) == 5
    assert "context share" in capsys.readouterr().out
    assert "falls further" in (place / "truncate.html").read_text()


def test_weights_by_name_and_together_and_the_ranks_of_powers_of_two(noisy):
    words = [str(noisy.path), "--n", "8", "--parts", "top", "--weights", "blocks.0.attn.W_O", "W_E+W_U"]
    found = measure(noisy, parse("truncate", words))["truncation"]
    assert found.weight.values.tolist() == ["blocks.0.attn.W_O", "W_E+W_U"]
    assert found.matrix.values.tolist() == ["L0H0 W_O", "W_E", "W_U"]
    assert found["rank"].values.tolist() == [0, 1, 2, 4, 8, 16, 32, 64]
    assert found.part.values.tolist() == ["top"]
