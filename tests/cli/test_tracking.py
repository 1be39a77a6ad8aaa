"""`train --track wandb`, with a stand-in for the library: what it is told, and what happens without it."""

import sys
from types import SimpleNamespace

import pytest

from mnemoscope.cli import main
from mnemoscope.cli.commands.train import report_to_wandb
from mnemoscope.training.recorder import Progress
from tests.support import SMALL, small_spec

TRAIN = ["train", "--preset", "v1", "--set", *(f"{name}={SMALL[name]}" for name in list(SMALL)[:4])]


class Wandb(SimpleNamespace):
    """Records what runs are begun, logged and finished."""

    def __init__(self, *, mode="offline", logged_in=False):
        super().__init__(begun=[], logged=[], finished=[])
        settings = SimpleNamespace(mode=mode, project=None)
        self.setup = lambda: SimpleNamespace(settings=settings)
        self.login = lambda *, prompt: logged_in
        self.Settings = SimpleNamespace

    def init(self, **given):
        self.begun.append(given)
        id_ = given["id"]
        return SimpleNamespace(
            log=lambda metrics, step: self.logged.append((id_, step, metrics)),
            finish=lambda exit_code=0: self.finished.append((id_, exit_code)),
        )


@pytest.fixture
def wandb(monkeypatch):
    library = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", library)
    return library


def test_every_line_of_every_run_is_sent(wandb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main([*TRAIN, "--seeds", "0-1", "--track", "wandb"])
    assert [each["name"].rpartition("/")[2] for each in wandb.begun] == ["seed-00", "seed-01"]
    assert all(each["config"]["recipe"]["n_steps"] == 60 and each["resume"] == "allow" for each in wandb.begun)
    first = wandb.begun[0]["id"]
    assert [step for id_, step, _ in wandb.logged if id_ == first] == [0, 10, 20, 30, 40, 50, 60]
    assert "test_elimination" in wandb.logged[0][2]
    assert wandb.finished == [(each["id"], 0) for each in wandb.begun]
    main([*TRAIN, "--seeds", "0-1", "--track", "wandb"])
    assert len(wandb.begun) == 2  # nothing was left to train


def test_a_run_that_is_interrupted_is_closed_and_continues_under_its_id(wandb, tmp_path):
    specs, paths = [small_spec("v1")], [tmp_path / "a"]
    line = Progress(paths[0], 10, 60, {"train_loss": 1.0})
    shown = []

    def interrupted():
        with report_to_wandb(shown.append, specs, paths) as report:
            report(line)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert shown == [line]
    assert [code for _, code in wandb.finished] == [1]
    with report_to_wandb(shown.append, specs, paths) as report:
        report(line)
    assert wandb.begun[0]["id"] == wandb.begun[1]["id"]


@pytest.mark.parametrize(
    ("library", "words"),
    [(None, "pip install 'mnemoscope\\[wandb\\]'"), (Wandb(mode="online"), "nobody is logged in; run `wandb login`")],
)
def test_without_the_library_or_an_account_nothing_is_trained(library, words, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "wandb", library)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main([*TRAIN, "--track", "wandb"])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert words.replace("\\", "") in error
    assert list(tmp_path.iterdir()) == []
