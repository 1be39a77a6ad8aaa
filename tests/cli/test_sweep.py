"""`mnemoscope sweep`: grids and searches that a file declares."""

import csv
from pathlib import Path

import pytest
import xarray as xr

from mnemoscope.cli import main
from mnemoscope.cli.commands.train import read_sweep
from mnemoscope.systems.factual_recall.analyses import FACTS, scaling_sweep
from tests.support import MINUTES

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "2026-factual-recall"
SHORT = "{recipe.n_steps: 20, recipe.batch_size: 16, recipe.metrics_every: 10, recipe.checkpoint_steps: []%s}"
GRID = f"""
preset: facts
seeds: 3-4
changes: {SHORT % ""}
axes:
  width: [{{model.d_model: 8, model.d_mlp: 4}}, {{model.d_model: 16, model.d_mlp: 8}}]
  task.length: [4, 6]
"""
SEARCH = f"""
preset: facts
seeds: [3]
changes: {SHORT % ", recipe.stop_at: 0.9, task.length: 4"}
axes: {{model.n_heads: [1, 2]}}
largest: {{fields: [task.n_subjects, task.n_relations], between: [2, 3]}}
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch, as_installed):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(file):
    return list(csv.reader(file.open()))


@pytest.mark.parametrize(
    "jobs", [pytest.param("1", marks=[pytest.mark.thorough, MINUTES]), pytest.param("2", marks=pytest.mark.full)]
)
def test_a_grid_is_trained_and_shown(place, capsys, jobs):
    (place / "grid.yaml").write_text(GRID)
    main(["sweep", "grid.yaml", "--out", "out", "--jobs", jobs])
    found = xr.load_dataset(place / "out" / "sweep.nc")
    assert dict(found.sizes) == {"width": 2, "task.length": 2, "seed": 2}
    assert found.seed.values.tolist() == [3, 4]
    header, *cells = rows(place / "out" / "sweep.csv")
    assert (header[:3], header[-3:]) == (["width", "task.length", "recall"], ["loss", "last step", "parameters"])
    assert header[3:-3] == [name.replace("_", " ") for name in found.attrs["numbers"]], "what the task measures besides"
    assert found.by_attention.sizes == found.test_loss.sizes
    assert [row[:2] for row in cells] == [["8", "4"], ["8", "6"], ["16", "4"], ["16", "6"]]
    assert len(list((place / "out" / "runs").rglob("done"))) == 8
    assert "mean [range] over 2 seeds" in capsys.readouterr().out
    page = (place / "out" / "sweep.html").read_text()
    assert "All numbers" in page
    assert page.count("<figure id=") == 4 + len(found.attrs["numbers"])


def test_a_search_is_shown_and_continues(place, capsys):
    (place / "search.yaml").write_text(SEARCH)
    main(["sweep", "search.yaml", "--out", "out"])
    first = xr.load_dataset(place / "out" / "sweep.nc")
    assert rows(place / "out" / "sweep.csv")[0] == ["model.n_heads", "largest", "parameters"]
    main(["sweep", "search.yaml", "--out", "out"])
    assert xr.load_dataset(place / "out" / "sweep.nc").identical(first)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "grid.yaml must hold the keys preset, seeds and axes; preset is missing"),
        ("preset: facts", "seeds is missing"),
        ("- facts", "grid.yaml must hold the keys preset, seeds and axes"),
        ("a: [", "grid.yaml is no YAML"),
        (GRID + "axis: 3", "a key of sweep"),
        (GRID.replace("3-4", "three"), "three"),
        (GRID.replace("task.length: [4, 6]", "task.length: 4"), "sweep.axes"),
        (GRID.replace("task.length: [4, 6]", "task.length: [4, x]"), "task.length"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(place, capsys, text, message):
    (place / "grid.yaml").write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["sweep", "grid.yaml"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
    assert not (place / "sweeps").exists()


def test_a_file_that_is_not_there_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["sweep", "nowhere.yaml"])
    assert "nowhere.yaml cannot be read: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["grid", "grid-published", "scaling", "scaling-published"])
def test_the_sweeps_of_the_experiments_can_be_read(name):
    sweep = read_sweep(EXPERIMENT / f"{name}.yaml")
    assert len(sweep.cells()) == {"grid": 25, "grid-published": 169, "scaling": 5, "scaling-published": 10}[name]
    if name == "scaling":
        (spec, *_) = scaling_sweep(sweep.seeds, mlp=True).specs()
        assert sweep.specs()[0].model == spec.model
        assert sweep.specs()[0].recipe == spec.recipe
        assert sweep.largest == FACTS
