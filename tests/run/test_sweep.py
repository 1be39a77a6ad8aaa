from pathlib import Path

import numpy as np
import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.models.run import open_run
from mnemoscope.run.sweep import SizeSearch, Sweep, final_metrics, n_trained, over_sweep, search_sweep, train_sweep

SHORT = {"recipe.n_steps": 20, "recipe.batch_size": 16, "recipe.metrics_every": 10, "recipe.checkpoint_steps": ()}
HALVES = {"model.d_model": 8, "model.d_mlp": 4}, {"model.d_model": 16, "model.d_mlp": 8}


def grid(**changes) -> Sweep:
    fields = {
        "preset": "facts",
        "seeds": (3, 4),
        "axes": {"width": HALVES, "task.length": (4, 6, 8)},
        "changes": SHORT,
    }
    return Sweep(**{**fields, **changes})


def test_every_combination_is_a_cell():
    sweep = grid()
    assert list(sweep.cells()) == [(d, length) for d in (8, 16) for length in (4, 6, 8)]
    specs = sweep.specs()
    assert [(s.model.d_model, s.model.d_mlp, s.task.length, s.seed) for s in specs[:3]] == [
        (8, 4, 4, 3),
        (8, 4, 4, 4),
        (8, 4, 6, 3),
    ]
    assert len({(spec.label, spec.seed) for spec in specs}) == 12


@pytest.mark.full
def test_what_comes_out_lies_where_it_belongs(tmp_path):
    sweep = grid(seeds=(3,))
    runs = train_sweep(sweep, tmp_path)
    found = final_metrics(sweep, runs)
    assert dict(found.sizes) == {"width": 2, "task.length": 3, "seed": 1}
    assert (found.last_step == 20).all()
    here = open_run(tmp_path / sweep.spec({**HALVES[1], "task.length": 6}, 3).label / "seed-03")
    assert float(found.test_loss.sel(width=16, seed=3, **{"task.length": 6})) == float(here.metrics().test_loss[-1])
    lengths = over_sweep(sweep, runs, length_of).length
    assert lengths.sel(width=8, seed=3).values.tolist() == [4, 6, 8]
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("done")}
    train_sweep(sweep, tmp_path)
    assert before == {file: file.stat().st_mtime_ns for file in tmp_path.rglob("done")}, "a second call trains nothing"


def length_of(run):
    return {"length": run.spec.task.length}


def test_trained_parameters_leave_out_what_is_held():
    spec = grid().spec(HALVES[0], 3)
    heads, width, inside, neurons = 8, 8, 8, 4
    attention = heads * (4 * width * inside + inside)  # of the biases that of the queries alone is learned
    assert n_trained(spec) == attention + 2 * width * neurons


# ---- searches

SCALE = SizeSearch(fields=("task.n_subjects", "task.n_relations"), between=(2, 16), per_octave=2)


def search(**changes) -> Sweep:
    early = {**SHORT, "recipe.stop_at": 0.9}
    return grid(**{"axes": {"task.length": (4, 8)}, "changes": early, "largest": SCALE, **changes})


def test_the_scale():
    assert SCALE.scale == [2, 3, 4, 6, 8, 11, 16]
    assert SizeSearch(fields=("task.length",), between=(5, 5)).scale == [5]
    assert SizeSearch(fields=("task.length",), between=(4, 9), per_octave=1).scale == [4, 8, 9]


class Trained:
    """In the place of training: a run learns up to so many facts, and is written down."""

    def __init__(self, limit):
        self.limit, self.asked = limit, []

    def __call__(self, spec, path):
        self.asked.append((spec.task.length, spec.task.n_subjects, spec.recipe.learning_rate, spec.seed))
        assert spec.task.n_subjects == spec.task.n_relations
        learned = spec.task.n_subjects <= self.limit(spec)
        return type("Run", (), {"last_step": 10 if learned else spec.recipe.n_steps})


@pytest.mark.parametrize("limit", [1, 2, 5, 11, 16, 99])
def test_a_search_finds_the_last_value_that_is_learned(tmp_path, monkeypatch, limit):
    train = Trained(lambda spec: limit if spec.task.length == 4 else limit / 2)
    monkeypatch.setattr("mnemoscope.run.sweep.train", train)
    found = search_sweep(search(), tmp_path)
    for length, most in ((4, limit), (8, limit / 2)):
        expected = max([0, *(value for value in SCALE.scale if value <= most)])
        assert found.largest.sel(**{"task.length": length}).values.tolist() == [expected] * 2
    assert len(train.asked) <= 2 * 2 * 3, "seven values take three runs"


def test_alternatives_are_tried_until_one_learns(tmp_path, monkeypatch):
    train = Trained(lambda spec: 4 if spec.recipe.learning_rate == 0.1 else 8)
    monkeypatch.setattr("mnemoscope.run.sweep.train", train)
    reports = []
    found = search_sweep(
        search(seeds=(5,), best_of={"recipe.learning_rate": (0.1, 0.01)}), tmp_path, report=lambda *n: reports.append(n)
    )
    assert np.unique(found.largest).tolist() == [8]
    assert reports == [(1, 2), (2, 2)]
    rates = [rate for length, n, rate, _ in train.asked if (length, n) == (4, 6)]
    assert rates == [0.1, 0.01]


def test_a_search_trains_what_it_asks_for_and_reads_it_the_second_time(tmp_path):
    sweep = search(seeds=(3,), axes={"task.length": (4,)})
    found = search_sweep(sweep, tmp_path)
    runs = sorted(tmp_path.rglob("done"))
    assert runs
    times = [file.stat().st_mtime_ns for file in runs]
    assert search_sweep(sweep, tmp_path).identical(found)
    assert [file.stat().st_mtime_ns for file in sorted(tmp_path.rglob("done"))] == times


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"axes": {}}, "axes must hold at least one value"),
        ({"seeds": ()}, "seeds must hold at least one value"),
        ({"axes": {"task.length": ()}}, "task.length must hold at least one value"),
        ({"axes": {"task.length": (4, 4)}}, "values of task.length must differ"),
        ({"axes": {"task.lenght": (4,)}}, "a key of task"),
        ({"axes": {"width": (4,)}}, "the first word of a change"),
        ({"preset": "fact"}, "preset"),
        ({"best_of": {"recipe.learning_rate": (0.1,)}}, "best_of is for searches"),
        ({"largest": SCALE}, "needs recipe.stop_at"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_anything_is_trained(changes, message):
    with pytest.raises(InputError, match=message):
        grid(**changes)


def test_a_search_needs_something_to_search(tmp_path):
    with pytest.raises(InputError, match=r"sweep.largest is missing"):
        search_sweep(grid(), Path(tmp_path))
    with pytest.raises(InputError, match="at least one field"):
        SizeSearch(fields=(), between=(1, 2))
    with pytest.raises(InputError, match="its first number"):
        SizeSearch(fields=("task.length",), between=(3, 2))
