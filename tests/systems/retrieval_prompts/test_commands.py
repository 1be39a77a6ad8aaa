"""`mnemoscope prompts retrieval` on a model that was saved to disk: tables, files, resuming, and what is refused."""

import csv

import pytest
import xarray as xr

from mnemoscope.cli import main
from mnemoscope.systems.retrieval_prompts.accuracy import accuracies, cells, retrieval_answers
from mnemoscope.systems.retrieval_prompts.figures import accuracy_figure
from mnemoscope.systems.retrieval_prompts.scoring import Sampling, StandIn
from tests.systems.retrieval_prompts import tiny

COMMAND = ["prompts", "retrieval"]
FEW = ["--formulations", "equations", "functions", "--difficulties", "1-2", "--questions", "3", "--tries", "2"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return tiny.save("llama", tmp_path_factory.mktemp("saved") / "tiny-llama")


@pytest.fixture(autouse=True)
def empty_directory(tmp_path, monkeypatch, as_installed):
    monkeypatch.chdir(tmp_path)


def test_tables_arrays_and_a_page(saved, tmp_path, capsys):
    main([*COMMAND, "--model", str(saved), *FEW, "--out", "out"])
    out = capsys.readouterr().out
    assert "equations D=2" in out
    assert "almost perfectly" in out
    accuracy = xr.open_dataset(tmp_path / "out" / "accuracy.nc")
    assert accuracy.sizes == {"model": 1, "scoring": 2, "cell": 3}
    answers = xr.open_dataset(tmp_path / "out" / "answers.nc")
    assert answers.attrs["prompts"] == "chat template"
    rows = list(csv.reader((tmp_path / "out" / "accuracy.csv").open()))
    assert len(rows) == 1 + 3 * 2
    page = (tmp_path / "out" / "retrieval.html").read_text()
    assert "Plotly" in page
    assert "almost perfectly" in page


@pytest.mark.full
def test_the_same_command_finds_its_answers_and_the_text_without_template_has_others(saved, tmp_path, monkeypatch):
    words = [*COMMAND, "--model", str(saved), *FEW, "--no-sampling", "--out", "out"]
    main(words)
    first = xr.load_dataset(tmp_path / "out" / "answers.nc")
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").rglob("*.json")}
    main(words)
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "out").rglob("*.json")} == files
    assert xr.load_dataset(tmp_path / "out" / "answers.nc").identical(first)
    main([*words, "--no-chat"])
    other = xr.load_dataset(tmp_path / "out" / "answers.nc")
    assert other.attrs["prompts"] == "text and cue"
    assert not other.log_prob.equals(first.log_prob)


def test_two_models_stand_beside_each_other(saved, tmp_path):
    base = tiny.save("gpt2", tmp_path / "tiny-gpt2", chat=False)
    main([*COMMAND, "--model", str(saved), "--model", str(base), *FEW, "--no-sampling", "--out", "out"])
    accuracy = xr.open_dataset(tmp_path / "out" / "accuracy.nc")
    assert accuracy.model.values.tolist() == [str(saved), str(base)]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--model", "nowhere/at-all"], "nowhere/at-all"),
        (["--formulations", "riddles"], "equations, lives-with, kingdoms, functions, relatives"),
        (["--difficulties", "hard"], "--difficulties must look like 3, 1-5 or 1,3,6; got 'hard'"),
        (["--difficulties", "7"], "Take fewer steps or fewer chains"),
        (["--chains", "1"], "n_chains must be at least 2"),
        (["--questions", "0"], "--questions must be at least 1"),
        (["--tries", "0"], "tries must be at least 1"),
        (["--temperature", "-1"], "temperature must be at least 0"),
        (["--device", "cdua"], "device must be one that torch can use"),
        (["--dtype", "float3"], "dtype must be one of"),
    ],
)
def test_wrong_input_gets_one_line(saved, words, named, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    model = [] if "--model" in words else ["--model", str(saved)]
    with pytest.raises(SystemExit) as end:
        main([*COMMAND, *model, *words])
    assert end.value.code == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert named in error[-1]
    assert sum(line.startswith("mnemoscope: ") for line in error) == 1
    assert not list(tmp_path.iterdir())


def test_the_figure_has_a_line_per_model_and_one_of_chance():
    found = [
        retrieval_answers(StandIn(share=share), cells(difficulties=(1, 2, 3)), n=20, sampling=Sampling())
        for share in (0.9, 0.5)
    ]
    together = xr.concat(found, xr.DataArray(["good", "fair"], dims="model", name="model"))
    measured = accuracies(together)
    figure = accuracy_figure(measured)
    titles = [annotation.text for annotation in figure.layout.annotations]
    assert titles[:3] == ["equations, most probable", "lives-with, most probable", "one difficulty, most probable"]
    lines = [trace for trace in figure.data if trace.name == "good"]
    assert len(lines) == 6
    assert list(lines[0].x) == [1, 2, 3]
    expected = measured.accuracy.sel(model="good", scoring="most probable").values
    assert list(lines[0].y) == expected[:3].tolist()
    assert list(lines[2].x) == ["kingdoms", "functions", "relatives"]
    chance = [trace for trace in figure.data if trace.name == "chance"]
    assert list(chance[0].y) == [0.25] * 3
    assert list(chance[2].y) == [0.25, 0.25, 1 / 16]
    assert sum(bool(trace.showlegend) for trace in figure.data) == 3
