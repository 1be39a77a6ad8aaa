"""The runs that come with the package at the command line: packed, listed, and named in the place of a directory."""

import shutil
from unittest import mock

import pytest

from mnemoscope.cli import main
from mnemoscope.core.presets import SYSTEMS, System, TrainingSet
from mnemoscope.models import zoo
from mnemoscope.models.packing import pack
from mnemoscope.models.run import find_runs
from mnemoscope.training.loop import train
from tests.support import SMALL, small_spec

SEQUENCE = "3 3 4 5 2 1 1 4 3"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A directory with two seeds of one configuration, 60 steps each."""
    directory = tmp_path_factory.mktemp("trained")
    for seed in (1, 2):
        train(small_spec("d4", seed=seed), directory / f"seed-0{seed}")
    return directory


@pytest.fixture
def system():
    """A system whose full plan those two seeds are."""
    part = TrainingSet(recipe="quick", presets=("d4",), seeds=(1, 2), changes=tuple(SMALL.items()))
    SYSTEMS.names()  # the built-in ones are there before
    with mock.patch.dict(SYSTEMS._items):
        SYSTEMS.add("small", System(summary="two small runs", quick=(), full=(part,)))
        yield


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch, as_installed):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(zoo, "folders", lambda: [tmp_path / "archives"])
    monkeypatch.setattr(zoo, "missing", list)
    monkeypatch.setattr(zoo, "folder", lambda module: tmp_path / "archives")


@pytest.fixture
def label(trained, tmp_path) -> str:
    """The configuration in the zoo."""
    return pack(find_runs(trained), tmp_path / "archives").stem


def refused(words: list[str], capsys) -> str:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    return error


@pytest.mark.full
def test_what_is_packed_is_listed(trained, system, tmp_path, capsys):
    main(["dev", "zoo", "small", "--runs", str(trained)])
    out = capsys.readouterr().out
    assert "d4+" in out
    assert "MB in" in out
    listed = (tmp_path / "archives" / "manifest.json").read_text()
    assert listed.count("steps replayed") == 2
    (tmp_path / "archives" / "manifest.json").unlink()
    main(["dev", "zoo", "small", "--manifest"])
    assert "archives listed: 1, in" in capsys.readouterr().out
    assert (tmp_path / "archives" / "manifest.json").read_text() == listed
    main(["list", "zoo"])
    out = capsys.readouterr().out
    assert "2: 1 to 2" in out
    assert "4 of seed 1, 1 of the others" in out
    assert not (tmp_path / "cache").exists()
    main(["list", "zoo:"])
    assert capsys.readouterr().out.count("finished") == 2


@pytest.mark.full
@pytest.mark.usefixtures("system")
def test_only_the_runs_of_the_plan_are_packed(trained, tmp_path, capsys, monkeypatch):
    runs = shutil.copytree(trained, tmp_path / "runs")
    words = ["dev", "zoo", "small", "--runs", "runs", "--out", "packed"]
    assert "--only must be one of: d4+" in refused([*words, "--only", "v3"], capsys)
    assert ", small; got 'large'" in refused(["dev", "zoo", "large", *words[3:]], capsys)
    train(small_spec("d4", seed=3), runs / "seed-03")
    main(words)
    (packed,) = (tmp_path / "packed").glob("*.zip")
    monkeypatch.setattr(zoo, "folders", lambda: [packed.parent])
    assert list(zoo.archive(packed.stem).steps) == ["seed-01", "seed-02"]
    packed.unlink()
    shutil.rmtree(runs / "seed-02")
    error = refused(words, capsys)
    assert "no finished d4+" in error
    assert "of seed 2;" in error
    shutil.copytree(trained / "seed-02", runs / "seed-02")
    for file in runs.glob("*/run.json"):
        file.write_text(file.read_text().replace('"batch_size": 512', '"batch_size": 256'))
    assert "has another specification than d4+" in refused(words, capsys)
    assert not packed.exists()


@pytest.mark.full
@pytest.mark.usefixtures("system")
def test_what_is_there_is_packed_and_the_rest_added_later(trained, tmp_path, capsys):
    words = ["dev", "zoo", "small", "--add", "--out", "packed", "--runs"]
    for seed, there in ((2, ["seed-02"]), (1, ["seed-01", "seed-02"])):
        main([*words, str(trained / f"seed-0{seed}")])
        (packed,) = (tmp_path / "packed").glob("*.zip")
        assert list(zoo.read_archive(packed).steps) == there
    train(small_spec("d4", seed=9), tmp_path / "other")
    assert "of seed 1, 2;" in refused([*words, "other"], capsys)


@pytest.mark.full
@pytest.mark.usefixtures("system")
def test_what_is_missing_is_trained_first(tmp_path, capsys):
    words = ["dev", "zoo", "small", "--runs", "runs"]
    assert "runs is no run directory" in refused(words, capsys)
    main([*words, "--train"])
    (packed,) = (tmp_path / "archives").glob("*.zip")
    before = packed.read_bytes()
    main([*words, "--train"])  # nothing is left to do
    assert packed.read_bytes() == before
    assert list(zoo.archive(packed.stem).steps) == ["seed-01", "seed-02"]


@pytest.mark.full
def test_runs_of_the_zoo_stand_in_for_directories(label, tmp_path, capsys):
    main(["predict", f"zoo:{label}/seed-01", SEQUENCE, "--step", "30", "--out", "view.html"])
    assert (tmp_path / "view.html").exists()
    main(["predict", f"zoo:{label}/seed-02", SEQUENCE])
    capsys.readouterr()
    main(["neurons", "zoo", "--n", "64", "--sampled"])
    assert "2 seeds" in capsys.readouterr().out
    assert (tmp_path / "results" / label / "neurons").is_dir()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["evaluate", "zoo:v9"], "a configuration of the zoo must be one of: d4+"),
        (["list", "zoo:v9"], "a configuration of the zoo must be one of: d4+"),
        (["predict", "zoo:{}/seed-77", SEQUENCE], "must be one of: seed-01, seed-02; got 'seed-77'"),
        (["predict", "zoo", SEQUENCE], "zoo names 2 runs; choose one, such as zoo:d4+"),
        (["predict", "zoo:{}/seed-02", SEQUENCE, "--step", "30"], "must be one of: 60; got 30"),
    ],
)
def test_a_word_that_names_nothing_says_what_exists(words, named, label, capsys):
    assert named in refused([word.format(label) for word in words], capsys)
