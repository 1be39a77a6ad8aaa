"""Commands read a compiled program like any other run."""

import re

import pytest

import mnemoscope as ms
from mnemoscope.cli import main
from mnemoscope.systems.rasp import presets
from mnemoscope.systems.rasp.models import compiled
from mnemoscope.systems.rasp.tasks import Rasp


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return compiled("hist").write_run("runs/hist")


def test_a_run_holds_the_program(run):
    read = ms.open_run(run.path)
    assert read.spec.task == Rasp(program="hist")
    assert read.label == "rasp-hist-tracr"
    found = compiled("hist")
    assert (read.hooked()(found.inputs) - found.outputs).abs().max() < 1e-4
    with pytest.raises(ms.InputError, match="another specification"):
        compiled("count").write_run(run.path)


@pytest.mark.full
@pytest.mark.parametrize(
    "words",
    [
        ["patch", "--n", "12"],
        ["ablate", "--n", "12"],
        ["discover", "--n", "12", "--n-random", "2"],
        ["shapley", "--n", "12"],
    ],
    ids=lambda words: words[0],
)
def test_commands_take_it(run, words, capsys):
    main([words[0], str(run.path), *words[1:]])
    assert "answer" in capsys.readouterr().out


@pytest.mark.full
def test_the_table_of_edges_shows_the_circuit(run, capsys):
    main(["edges", str(run.path), "--n", "24", "--no-approximate"])
    rows = re.findall(r"│ (\S.* → .*?) +│ +([\d.]+) │", capsys.readouterr().out)
    assert len(rows) == len(ms.interventions.model_edges(run))
    moved = {edge.replace("the head", "L0H0") for edge, share in rows if float(share) > 0}
    assert moved == compiled("hist").edges


def test_the_preset_trains_the_same_task():
    spec = ms.preset("rasp", changes={"task.program": "majority"})
    assert presets.Rasp is Rasp
    assert spec.task == compiled("majority").task
