"""`--scheduler` on commands as a user types them: a cluster of one worker in this process, and the same files."""

import json
from pathlib import Path

import pytest

from mnemoscope.cli import main
from tests.cli.test_claims import make_untrained_runs
from tests.support import MINUTES, SMALL, contents

CLUSTER = """
class: distributed.LocalCluster
arguments: {processes: false, n_workers: 1, threads_per_worker: 1, dashboard_address: '127.0.0.1:0'}
"""
TRAIN = ["train", "--preset", "v3", "--seeds", "3-4", "--set", *(f"{name}={SMALL[name]}" for name in list(SMALL)[:4])]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch, as_installed):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


def files(directory: Path, *endings: str) -> dict[str, bytes]:
    found = (file for ending in endings for file in directory.rglob(f"*{ending}"))
    return {str(file.relative_to(directory)): file.read_bytes() for file in found}


@MINUTES
@pytest.mark.thorough
def test_runs_and_tables_are_the_same(place, capsys):
    main([*TRAIN, "--out", "there/runs", "--scheduler", "cluster.yaml"])
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith("scheduler inproc://")
    assert printed.count("dashboard http://") == 1
    assert "recall" in printed, "the lines of progress"
    main([*TRAIN, "--out", "here/runs"])
    runs = [sorted((place / where).rglob("seed-*")) for where in ("there", "here")]
    assert len(runs[0]) == 2
    assert list(map(contents, runs[0])) == list(map(contents, runs[1]))
    for where, words in (("there", ["--scheduler", "cluster.yaml"]), ("here", [])):
        main(["neurons", "here/runs", "--out", f"{where}/results", *words])
    results = [files(place / where / "results", ".csv", ".nc") for where in ("there", "here")]
    assert {name.rpartition(".")[2] for name in results[0]} == {"csv", "nc"}
    assert results[0] == results[1]


@MINUTES
@pytest.mark.thorough
def test_verdicts_are_the_same_and_the_store_is_shared(place):
    runs = make_untrained_runs()
    words = ["claims", "run", "T1", "--runs", runs, "--no-sensitivity"]
    main([*words, "--jobs", "1", "--out", "here", "--store", "store/here"])
    main([*words, "--out", "there", "--store", "store/there", "--scheduler", "cluster.yaml"])
    assert (place / "here/verdicts.json").read_bytes() == (place / "there/verdicts.json").read_bytes()
    kept = [
        {name: json.loads(text) for name, text in files(place / "store" / w, ".json").items()}
        for w in ("here", "there")
    ]
    assert kept[0]
    assert str(kept[0]) == str(kept[1])
    assert not (place / "here/measured").exists()


def test_a_wrong_address_is_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        main([*TRAIN, "--scheduler", "tcp://nowhere"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not Path("runs").exists()


def test_a_store_that_cannot_be_is_refused_before_the_work(capsys):
    Path("file").touch()
    with pytest.raises(SystemExit) as ended:
        main(["claims", "run", "T1", "--runs", make_untrained_runs(), "--store", "file"])
    assert ended.value.code == 2
    assert "--store must be a directory; file is a file" in capsys.readouterr().err
