"""`mnemoscope methods`: what it writes, that it goes on, and methods of a user's own."""

import csv
from pathlib import Path
from unittest import mock

import pytest
import xarray as xr

from mnemoscope.cli import main
from mnemoscope.methods import trial
from mnemoscope.methods.catalogue import METHODS

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "writer_moves.py"
WORDS = ["methods", "--circuits", "induction", "elimination", "--n", "4", "--draws", "1"]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def forgotten(tmp_path, monkeypatch):
    """Works in an empty directory; what is registered is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    METHODS.names()
    with mock.patch.dict(METHODS._items):
        yield tmp_path / "results" / "methods"


@pytest.mark.full
def test_a_method_of_ones_own_stands_in_table_arrays_and_page(forgotten, monkeypatch, capsys):
    words = [*WORDS, "--methods", "edge-patching", "random", "writer-moves", "--import", str(EXAMPLE)]
    main(words)
    assert "Of the methods that take every circuit edge-patching ranks true edges best" in capsys.readouterr().out
    table = {row["method"]: row for row in rows(forgotten / "methods.csv")}
    assert table["edge-patching"]["AUROC"] == "1.00"
    assert float(table["writer-moves"]["AUROC"]) < 1
    assert rows(forgotten / "descriptions.csv")[2]["what it does"].startswith(
        "The distance between the writer's outputs"
    )
    assert [row["edges"] for row in rows(forgotten / "circuits.csv")] == ["5 of 29", "2 of 9"]
    with xr.open_datatree(forgotten / "circuits.nc", engine="h5netcdf") as tree:
        assert tree["elimination"].score.sizes["edge"] == 9
    page = (forgotten / "methods.html").read_text(encoding="utf-8")
    assert page.count("plotly-graph-div") >= 3
    assert "InterpBench protocol" in page
    monkeypatch.setattr(trial, "try_circuit", None)  # a second call measures nothing
    measured = sorted((forgotten / "measured").iterdir())
    kept = {file.name: xr.load_dataset(file, engine="h5netcdf").attrs["stamp"] for file in measured}
    monkeypatch.setattr(trial.Piece, "stamp", property(lambda piece: kept[piece.kept.name]))
    main(words)
    assert {row["method"]: row["AUROC"] for row in rows(forgotten / "methods.csv")} == {
        name: row["AUROC"] for name, row in table.items()
    }
