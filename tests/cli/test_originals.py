"""`--original FILE` of the commands that take models apart: a table beside the seeds, and what is refused."""

import csv

import pytest

from mnemoscope.cli import main
from mnemoscope.models import write_original
from mnemoscope.models.run import find_runs
from mnemoscope.records.record import records


@pytest.fixture
def published(two_seeds, tmp_path, monkeypatch):
    """The file of the second of the two runs."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.safetensors"
    write_original(find_runs([two_seeds])[1].hooked(), path)
    return path


def test_every_number_of_the_original_stands_beside_the_seeds(published, two_seeds, tmp_path, capsys):
    main(["ablate", str(two_seeds), "--n", "64", "--original", str(published)])
    (place,) = tmp_path.glob("results/*/ablate")
    header, *rows = csv.reader((place / "original-mine.csv").open())
    assert header == ["table", "number", "original", "seeds", "place among the seeds"]
    assert {row[0] for row in rows} >= {"accuracy", "costs"}
    assert all(row[-1].endswith(" of 3") for row in rows)
    assert any("nothing" in row[1] for row in rows)
    assert "the original mine beside the seeds" in capsys.readouterr().out
    assert "the original mine beside the seeds" in (place / "ablate.html").read_text()


@pytest.mark.full
def test_it_is_measured_as_a_run_is(published, two_seeds, tmp_path):
    """The same model as a run and as an original has the same numbers where prompts are the same."""
    main(["truncate", str(two_seeds), "--n", "64", "--ranks", "0", "--original", str(published)])
    (place,) = tmp_path.glob("results/*/truncate")
    _, *rows = csv.reader((place / "original-mine.csv").open())
    whole = [row for row in rows if row[0] == "accuracy"]
    assert whole
    for _, _, own, seeds, _ in whole:
        assert float(own) == pytest.approx(float(seeds.split()[0]), abs=0.3)


@pytest.mark.full
@pytest.mark.parametrize("command", sorted(records()))
def test_every_analysis_takes_it(command, published, two_seeds, tmp_path, capsys):
    quick = ["--n-chains", "2", "--burn-in", "20", "--draws", "10"]
    words = {"neurons": ["--sampled"], "truncate": ["--ranks", "0"], "learning-coefficient": quick}
    extra = words.get(command, [])
    main([command, str(two_seeds), "--n", "32", *extra, "--original", str(published)])
    none = "have no number that the original mine and several seeds share" in " ".join(capsys.readouterr().out.split())
    assert bool(list(tmp_path.glob(f"results/*/{command}/original-mine.csv"))) != none
    assert not none or command == "heads", "its rows are of the mechanism that was found"


def test_what_is_refused(published, two_seeds, tmp_path, capsys):
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"no weights")
    for runs, file, words in (
        (two_seeds, tmp_path / "absent.safetensors", "does not exist"),
        (two_seeds, other, "cannot be read as safetensors"),
        ("zoo:d4-quick", published, "must have the inputs, outputs, layers and heads of the runs"),
        (two_seeds / "seed-3", published, "at least two seeds"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["ablate", str(runs), "--n", "64", "--original", str(file)])
        assert end.value.code == 2
        error = capsys.readouterr().err
        assert words in error
        assert len(error.strip().splitlines()) == 1
        assert not (tmp_path / "results").exists()
