"""The page on runs of Markov chains: predictors, attention and phases."""

import shutil

import pytest

from mnemoscope.cli import main
from mnemoscope.core.presets import preset
from mnemoscope.models.run import open_run
from mnemoscope.systems.markov.report import example_words, known_of, predict
from mnemoscope.systems.markov.tasks import MarkovChains
from tests.cli.test_position_names import SHORT


def test_what_followed_is_told_in_words():
    task = MarkovChains()
    assert known_of(task, task.parse("abacab")) == [
        "", "", "followed by b 1", "", "followed by b 1, c 1", "followed by a 1"
    ]  # fmt: skip
    words, answer = example_words(task, task.parse("abcabc"))
    assert (words, answer) == ("abcabc…", "a")


@pytest.mark.full
def test_the_page_has_predictors_attention_and_phases(trained_once, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = preset("markov-3", "quick", 0, changes={**SHORT, "task.length": 16})
    run = open_run(shutil.copytree(trained_once("markov report", spec).path, tmp_path / "run"))
    main(["evaluate", "--checkpoints", str(run.path)])
    main(["report", str(run.path)])
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    for words in ("Whose predictions these are", "closed share of the gap", "layer 1: one back", "Phases of training"):
        assert words in text
    found = predict(run.hooked(), run.spec.task, run.spec.task.parse("abcab"))
    assert found.known.values.tolist()[3] == "followed by b 1"
