import json
import math
from pathlib import Path

import pytest
import torch
import xarray as xr

from mnemoscope.core.errors import InputError
from mnemoscope.models.checkpoint import save_checkpoint
from mnemoscope.models.lens import HAS_HOOKED_TRANSFORMER
from mnemoscope.models.run import Run, by_label, create_run, find_runs, open_run
from tests.support import random_model, small_spec


def make(path: Path, spec=None, *, steps=(0,)) -> Run:
    """A run directory with checkpoints that nobody trained."""
    run = create_run(path, spec or small_spec())
    for step in steps:
        save_checkpoint(random_model(seed=step), run.checkpoint_path(step), step=step)
    return run


def test_a_run_is_found_as_it_was_made(tmp_path):
    spec = small_spec(seed=4)
    run = create_run(tmp_path / "a" / "b", spec)
    assert open_run(run.path) == run == create_run(run.path, spec)
    assert (run.label, run.finished, run.steps) == (spec.label, False, ())
    content = json.loads((run.path / "run.json").read_text())
    assert set(content["versions"]) == {"python", "mnemoscope", "torch", "transformer-lens"}


def test_a_directory_holds_one_run(tmp_path):
    make(tmp_path)
    with pytest.raises(InputError, match="holds a run with another specification"):
        create_run(tmp_path, small_spec(seed=1))


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "needs preset, seed, task, model and recipe"),
        ("{}", "needs preset, seed, task, model and recipe"),
        (b"\xff\xfe", "cannot be read"),
        (None, "is no run directory"),
    ],
)
def test_a_directory_that_is_no_run_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "run.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        open_run(tmp_path)


def test_an_unknown_key_is_refused(tmp_path):
    file = make(tmp_path).path / "run.json"
    content = json.loads(file.read_text())
    content["model"]["n_head"] = 3
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match="a key of model must be one of: d_model, n_heads"):
        open_run(tmp_path)


def test_checkpoints_are_read_by_step(tmp_path):
    run = make(tmp_path, steps=(10, 0, 9))
    assert run.steps == (0, 9, 10)
    for step, model in run.models():
        assert torch.equal(model.W_E, random_model(seed=step).W_E)
    assert torch.equal(run.model().W_E, run.model(10).W_E)
    with pytest.raises(InputError, match=r"the step of .* must be one of: 0, 9, 10; got 3"):
        run.model(3)


def test_what_is_not_there_yet_is_named(tmp_path):
    run = make(tmp_path, steps=())
    with pytest.raises(InputError, match="has no checkpoint yet; train it first"):
        run.model()
    with pytest.raises(InputError, match="has no metrics yet; train it first"):
        run.metrics()


def test_a_trained_run_knows_where_it_started(tiny):
    first, untrained = tiny.model(0).state_dict(), tiny.untrained().state_dict()
    assert all(torch.equal(first[name], untrained[name]) for name in first)
    assert not torch.equal(tiny.model().W_E, tiny.untrained().W_E)
    assert tiny.steps == (0, 10, 30, 60)
    assert tiny.finished


def test_metrics_are_labelled_by_step(tiny):
    metrics = tiny.metrics()
    lines = [json.loads(line) for line in (tiny.path / "metrics.jsonl").read_text().splitlines()]
    assert metrics.step.values.tolist() == list(range(0, 61, 10))
    assert metrics.test_loss.values.tolist() == [line["test_loss"] for line in lines]


def test_runs_are_found_by_label_and_seed(tmp_path):
    for name, preset, seed in (("x", "v3", 1), ("y/deep", "v1", 0), ("z", "v3", 0)):
        make(tmp_path / name, small_spec(preset, seed=seed))
    make(tmp_path / "empty", steps=())
    found = find_runs(tmp_path)
    assert found == sorted(found, key=lambda run: (run.label, run.spec.seed))
    assert {run.path.relative_to(tmp_path).parts[0] for run in found} == {"x", "y", "z"}
    assert find_runs(tmp_path / "x") == [open_run(tmp_path / "x")]
    groups = by_label(found)
    assert {label[:2]: [run.spec.seed for run in group] for label, group in groups.items()} == {"v1": [0], "v3": [0, 1]}


def test_where_no_run_is_found_the_directory_is_named(tmp_path):
    make(tmp_path / "full")
    make(tmp_path / "empty", steps=())
    with pytest.raises(InputError, match="empty is no run directory and holds none with a checkpoint"):
        find_runs([tmp_path / "full", tmp_path / "empty"])


def test_groups_hold_replicates_only(tmp_path):
    run = make(tmp_path / "a")
    twin = Run(tmp_path / "b", run.spec)
    other = Run(tmp_path / "c", small_spec(seed=1, changes={"model.d_model": 16}))
    renamed = Run(other.path, type(run.spec)(**{**vars(other.spec), "preset": run.spec.preset}))
    fixed = [Run(tmp_path / str(s), small_spec(seed=s, changes={"task.split_seed": 0})) for s in (0, 1)]
    with pytest.raises(InputError, match=r"seed 0 of .* stands in two directories") as refused:
        by_label([other, run, twin])
    assert f"{run.path} and {twin.path}; name one of them" in str(refused.value)
    with pytest.raises(InputError, match="a is named twice"):
        by_label([run, run])
    with pytest.raises(InputError, match="have different configurations"):
        by_label([run, renamed])
    assert len(by_label([run, other])) == 2
    assert list(by_label(fixed).values()) == [fixed]


def test_a_trajectory_comes_back_as_it_was_written(tiny, tmp_path):
    run = make(tmp_path)
    assert run.trajectory() is None
    measures = xr.Dataset(
        {"loss": ("step", [1.25, 0.5]), "recall": ("step", [math.nan, 0.1])},
        coords={"step": [0, 10]},
        attrs={"unit": "nats"},
    )
    run.write_trajectory(measures)
    assert run.trajectory().identical(measures)
    run.trajectory_path.write_text("{}")
    with pytest.raises(
        InputError, match=r"trajectory\.json cannot be read: .*; `mnemoscope evaluate --checkpoints` makes it"
    ):
        run.trajectory()


@pytest.mark.parametrize(
    "name",
    [
        *("v3-quick", "v3-no-norm-published", "birth-2-layers-quick", "facts-linear-quick", "k-hop-4-quick"),
        "retrieval-2-1-layer-quick",
    ],
)
def test_both_classes_hold_the_same_model(name):
    run = find_runs(f"zoo:{name}")[0]
    task, draws = run.spec.task, torch.Generator().manual_seed(0)
    inputs = task.sample(4, split="test", generator=draws).inputs
    theirs, own = run.model(), run.hooked()
    assert type(theirs) is not type(own) or not HAS_HOOKED_TRANSFORMER
    assert list(theirs.hook_dict) == list(own.hook_dict)
    assert theirs(inputs).equal(own(inputs))
    assert run.untrained()(inputs).equal(run.untrained(own=True)(inputs))
