"""The origin of a run, and its first steps trained again."""

import json
import math
import shutil

import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.core.seeding import generator
from mnemoscope.models.checkpoint import weights_digest
from mnemoscope.models.run import open_run
from mnemoscope.training import schedule
from mnemoscope.training.loop import train, train_together
from mnemoscope.training.origin import expected_origin
from mnemoscope.training.replay import TOLERANCE, replay
from tests.support import small_spec


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """60 steps, with lines of metrics at every tenth and checkpoints of 0, 10, 30 and 60."""
    return train(small_spec("d4", seed=3), tmp_path_factory.mktemp("replay") / "run")


@pytest.fixture
def copy(run, tmp_path):
    return open_run(shutil.copytree(run.path, tmp_path / "copy"))


def edit_record(run, **changes):
    content = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**content, **changes}))
    return open_run(run.path)


def test_training_writes_down_what_it_starts_from(run, tmp_path):
    assert run.origin == expected_origin(run.spec)
    assert run.origin["initial_weights"] == weights_digest(run.checkpoint_path(0))[1]
    other = expected_origin(small_spec("d4", seed=4))
    assert run.origin["initial_weights"] != other["initial_weights"]
    assert run.origin["first_batches"] != other["first_batches"]
    together = train_together([small_spec("d4", seed=seed) for seed in (3, 4)], [tmp_path / "3", tmp_path / "4"])
    assert [each.origin for each in together] == [run.origin, other]


def test_the_first_steps_have_the_same_bits(run):
    found = replay(run, 30)
    assert found.agrees
    assert found.exact
    assert found.compared == {"metrics": (0, 10, 20, 30), "weights": (0, 10, 30)}
    assert str(found) == (
        "30 steps replayed: metrics of steps 0, 10, 20, 30 and weights of steps 0, 10, 30 bit for bit; losses of the "
        "last checkpoint as logged"
    )


def test_a_replay_goes_on_to_the_first_line_of_metrics(run):
    assert replay(run, 2).n_steps == 10


def test_another_seed_or_another_log_does_not_agree(copy):
    log = copy.path / "metrics.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for place, what in ((0, "early"), (1, "early"), (-1, "end")):
        edited = [dict(line) for line in lines]
        edited[place]["test_loss"] += 1e-3
        log.write_text("".join(json.dumps(line) + "\n" for line in edited))
        found = replay(copy)
        assert not found.agrees
        assert getattr(found, what) == pytest.approx(1e-3 / max(1, lines[place]["test_loss"]), rel=0.01)
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert replay(copy).agrees
    moved = edit_record(copy, seed=5)
    assert replay(moved).early > 100 * TOLERANCE


def test_data_of_another_seed_do_not_agree(tmp_path, monkeypatch):
    """Initial weights are those of the seed, and sequences of another one."""
    monkeypatch.setattr(schedule, "generator", lambda seed, *stream, **options: generator(seed + 1, *stream, **options))
    run = train(small_spec("d4", seed=3), tmp_path / "run")
    monkeypatch.undo()
    expected = expected_origin(run.spec)
    assert run.origin["initial_weights"] == expected["initial_weights"]
    assert run.origin["first_batches"] != expected["first_batches"]
    found = replay(run)
    assert found.early > TOLERANCE
    assert not found.agrees


def test_without_a_log_and_checkpoints_nothing_is_compared(copy):
    (copy.path / "metrics.jsonl").unlink()
    for step in copy.steps[:-1]:
        copy.checkpoint_path(step).unlink()
    found = replay(copy)
    assert not found.agrees
    assert math.isnan(found.early)
    assert str(found) == "no metrics and no checkpoint to compare a replay with"
    with pytest.raises(InputError, match="n_steps of a replay"):
        replay(copy, -1)
