import multiprocessing
import random
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import preset
from mnemoscope.core.specification import Freeze, TaskChange
from mnemoscope.models.checkpoint import load_checkpoint
from mnemoscope.models.independence import check_replicates
from mnemoscope.models.run import open_run
from mnemoscope.training import recorder
from mnemoscope.training.learner import Learner
from mnemoscope.training.loop import train, train_together
from mnemoscope.training.recorder import last_step, read_state
from mnemoscope.training.schedule import TrainingBatches
from tests.support import contents, flip, global_generators_untouched, small_spec

N_STEPS = 60
STOPS = sorted(random.Random(0).sample(range(1, N_STEPS), 5))


class Stopped(Exception):  # noqa: N818
    pass


@pytest.fixture(scope="module")
def finished(tiny) -> dict:
    """What the uninterrupted run left behind."""
    return contents(tiny.path)


@pytest.fixture
def stop_at(monkeypatch):
    """Makes training stop when it asks for the batch of a step; None: no more."""
    original = TrainingBatches.batch

    def install(step: int | None) -> None:
        def batch(self, wanted):
            if wanted == step:
                raise Stopped
            return original(self, wanted)

        monkeypatch.setattr(TrainingBatches, "batch", batch)

    return install


# ---- interruption


def mostly_thorough(first, *others):
    """One case in the default lane, and the others, on the same path, in the thorough one."""
    return [first, *(pytest.param(case, marks=pytest.mark.thorough) for case in others)]


@pytest.mark.parametrize("step", mostly_thorough(STOPS[-1], *STOPS[:-1]))
def test_a_run_that_was_interrupted_ends_with_the_same_bytes(tmp_path, finished, stop_at, step):
    stop_at(step)
    with pytest.raises(Stopped):
        train(small_spec(), tmp_path)
    stop_at(None)
    assert last_step(open_run(tmp_path)) == step // 25 * 25
    assert train(small_spec(), tmp_path).finished
    assert contents(tmp_path) == finished


def test_a_run_may_be_interrupted_again_and_again(tmp_path, finished, stop_at):
    for step in (*STOPS, STOPS[-1]):
        stop_at(step)
        with pytest.raises(Stopped):
            train(small_spec(), tmp_path)
    stop_at(None)
    train(small_spec(), tmp_path)
    assert contents(tmp_path) == finished


@pytest.mark.full
@pytest.mark.parametrize("step", mostly_thorough(50, 0, 20, 60))
def test_stopping_in_the_report_is_no_different(tmp_path, finished, step):
    def report(progress):
        if progress.step == step:
            raise Stopped

    with pytest.raises(Stopped):
        train(small_spec(), tmp_path, report=report)
    train(small_spec(), tmp_path)
    assert contents(tmp_path) == finished


@pytest.mark.full
@pytest.mark.parametrize("function", ["save_checkpoint", "write_state", "write_atomically"])
@pytest.mark.parametrize("call", mostly_thorough(2, 1))
def test_stopping_before_a_write_is_no_different(tmp_path, finished, monkeypatch, function, call):
    calls = iter(range(100))
    original = getattr(recorder, function)

    def fail(*arguments, **options):
        if next(calls) == call:
            raise Stopped
        return original(*arguments, **options)

    monkeypatch.setattr(recorder, function, fail)
    with pytest.raises(Stopped):
        train(small_spec(), tmp_path)
    monkeypatch.setattr(recorder, function, original)
    train(small_spec(), tmp_path)
    assert contents(tmp_path) == finished


def train_and_tell(path: Path, pipe) -> None:
    def report(progress):
        pipe.send(progress.step)
        if progress.step == 250:
            signal.pause()  # never finish before the kill

    train(small_spec(changes=LONG), path, report=report)


LONG = {"recipe.n_steps": 300, "recipe.metrics_every": 25, "recipe.save_every": 20, "recipe.batch_size": 64}


@pytest.mark.thorough
def test_a_killed_run_ends_with_the_same_bytes(tmp_path):
    context = multiprocessing.get_context("fork")  # a spawned one would import everything again
    listen, tell = context.Pipe(duplex=False)
    process = context.Process(target=train_and_tell, args=(tmp_path / "killed", tell))
    process.start()
    tell.close()
    while listen.recv() < 150:
        pass
    process.kill()
    process.join(timeout=60)
    assert process.exitcode == -signal.SIGKILL
    run = train(small_spec(changes=LONG), tmp_path / "whole")
    killed = open_run(tmp_path / "killed")
    assert not killed.finished
    assert 140 <= last_step(killed) <= 240
    train(run.spec, killed.path)
    assert contents(killed.path) == contents(run.path)


def test_a_finished_run_is_not_touched(tmp_path):
    """Nor is a file made in its directories for a moment, so that others may copy them meanwhile."""
    spec = small_spec(changes={"recipe.n_steps": 30})
    train(spec, tmp_path)

    def times():
        return {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.rglob("*"))}

    before, reports = times(), []
    train(spec, tmp_path, report=reports.append)
    assert reports == []
    assert times() == before


# ---- refused


def test_another_specification_in_the_same_directory_is_refused(tmp_path, stop_at):
    stop_at(5)
    with pytest.raises(Stopped):
        train(small_spec(), tmp_path)
    before = contents(tmp_path)
    with pytest.raises(InputError, match="holds a run with another specification"):
        train(small_spec(seed=1), tmp_path)
    assert contents(tmp_path) == before


def hold(path: Path, pipe) -> None:
    def report(progress):
        pipe.send(progress.step)
        signal.pause()

    train(small_spec(changes=LONG), path, report=report)


@pytest.mark.full
def test_a_directory_that_another_process_trains_is_refused_until_that_ends(tmp_path):
    context = multiprocessing.get_context("fork")
    listen, tell = context.Pipe(duplex=False)
    process = context.Process(target=hold, args=(tmp_path, tell))
    process.start()
    assert listen.recv() == 0
    try:
        with pytest.raises(InputError, match="is being trained by another process; wait for it or choose another"):
            train(small_spec(changes=LONG), tmp_path)
        assert open_run(tmp_path).spec.seed == 0
    finally:
        process.kill()
        process.join(timeout=60)
    assert train(small_spec(changes=LONG), tmp_path).finished


def test_the_same_directory_twice_is_refused(tmp_path):
    with pytest.raises(InputError, match="is being trained by another process"):
        train_together([small_spec(), small_spec()], [tmp_path, tmp_path])


@pytest.mark.full
def test_a_damaged_state_is_refused_with_the_way_out(tmp_path, finished, stop_at):
    stop_at(40)
    with pytest.raises(Stopped):
        train(small_spec(), tmp_path)
    stop_at(None)
    state = tmp_path / "last.safetensors"
    flip(state, -1)
    with pytest.raises(InputError, match=r"was changed .*; without last.safetensors the run starts afresh"):
        train(small_spec(), tmp_path)
    state.unlink()
    train(small_spec(), tmp_path)
    assert contents(tmp_path) == finished


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipe.frozen": (Freeze(parameters="nothing"),)}, "matches no parameter"),
        ({"recipe.task_changes": (TaskChange(step=1, field="n_values", value=4),)}, "must keep the vocabulary"),
    ],
)
def test_a_recipe_that_cannot_work_writes_nothing(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        train(small_spec(changes=changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("device", ["cdua", "cuda:99", "meta", torch.device("cuda", 99)])
def test_a_device_that_is_not_there_writes_nothing(tmp_path, device):
    with pytest.raises(InputError, match="device must be one that torch can use on this machine: cpu"):
        train(small_spec(), tmp_path / "run", device=device)
    assert not (tmp_path / "run").exists()


def test_only_replicates_train_together(tmp_path):
    specs = [small_spec(), small_spec(seed=1, changes={"model.d_model": 16})]
    with pytest.raises(InputError, match="may differ in the seed only"):
        train_together(specs, [tmp_path / "a", tmp_path / "b"])
    assert not list(tmp_path.iterdir())


# ---- what training does


def test_training_leaves_the_global_generators_alone(tmp_path, finished):
    with global_generators_untouched():
        train(small_spec(), tmp_path)
    assert contents(tmp_path) == finished


def test_the_report_gets_every_line_of_metrics(tmp_path):
    lines = []
    run = train(small_spec(changes={"recipe.n_steps": 30}), tmp_path, report=lines.append)
    assert [(line.path, line.step, line.n_steps) for line in lines] == [(tmp_path, s, 30) for s in (0, 10, 20, 30)]
    assert [line.metrics["test_loss"] for line in lines] == run.metrics().test_loss.values.tolist()


def test_the_loss_falls(learned):
    losses = learned.metrics().train_loss
    assert losses[0] > 1.7
    assert losses[-1] < 1.0
    assert learned.metrics().test_elimination[-1] > 0.99


def test_seeds_give_different_models(tmp_path, tiny):
    other = train(small_spec(seed=1), tmp_path)
    assert not torch.equal(other.model().W_E, tiny.model().W_E)


def moved(path: Path, start: int, stop: int) -> dict[str, bool]:
    first, second = (
        dict(load_checkpoint(path / "checkpoints" / f"{step:08d}.safetensors").named_parameters())
        for step in (start, stop)
    )
    return {name: not torch.equal(first[name], second[name]) for name in first}


def test_frozen_parameters_do_not_move_while_they_are_frozen(tmp_path):
    freeze = (Freeze(parameters="*.attn.*", stop=30), Freeze(parameters="unembed.*", start=30))
    train(small_spec(changes={"recipe.frozen": freeze, "recipe.weight_decay": 0.1}), tmp_path)
    early, late = moved(tmp_path, 0, 30), moved(tmp_path, 30, 60)
    assert {name for name, yes in early.items() if not yes} == {name for name in early if ".attn." in name}
    assert {name for name, yes in late.items() if not yes} == {"unembed.W_U", "unembed.b_U"}


@pytest.mark.parametrize(("field", "part"), [("attention", ".attn."), ("positions", "pos_embed")])
def test_what_the_architecture_switches_off_stays_zero(tmp_path, field, part):
    run = train(small_spec(changes={f"model.{field}": False, "recipe.n_steps": 30}), tmp_path)
    off = [value for name, value in run.model().named_parameters() if part in name]
    assert off
    assert not any(value.any() for value in off)


# ---- data


def latents(task, examples):
    """Of the batch of the only run."""
    return task.from_tokens(examples.inputs[0], examples.targets[0]).latents


def test_a_batch_is_a_function_of_the_step():
    spec = small_spec()
    in_order = TrainingBatches([spec])
    batches = [in_order.batch(step).inputs for step in range(40)]
    for step in (39, 0, 31, 32):  # 32 steps a block
        assert torch.equal(TrainingBatches([spec]).batch(step).inputs, batches[step])
    assert len({tuple(b.flatten().tolist()) for b in batches}) == 40
    assert not torch.equal(TrainingBatches([small_spec(seed=1)]).batch(0).inputs, batches[0])


def test_batches_show_training_mappings_only():
    spec = small_spec()
    train_mappings = set(map(tuple, spec.task.mappings("train").tolist()))
    examples = TrainingBatches([spec]).batch(0)
    assert examples.inputs.shape == (1, 512, 9)
    assert set(map(tuple, latents(spec.task, examples)["mapping"].tolist())) == train_mappings


def test_task_changes_change_the_data():
    changes = (
        TaskChange(step=20, field="repeat_ratio", value=1.0),
        TaskChange(step=40, field="copied_slots", value=(2,)),
    )
    spec = small_spec(changes={"task.repeat_ratio": 0.0, "recipe.task_changes": changes})
    blocks = TrainingBatches([spec])
    slots = [set(latents(spec.task, blocks.batch(step))["source_slot"].tolist()) for step in (19, 20, 39, 40)]
    assert slots == [{0}, {1, 2, 3, 4}, {1, 2, 3, 4}, {2}]


# ---- many seeds as one program

ENSEMBLE = {
    "model.dtype": "float64",
    "recipe.n_steps": 100,
    "recipe.batch_size": 64,
    "recipe.frozen": (Freeze(parameters="pos_embed.*", stop=10),),
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> list:
    """Three seeds, one at a time."""
    path = tmp_path_factory.mktemp("alone")
    return [train(small_spec(seed=seed, changes=ENSEMBLE), path / str(seed)) for seed in range(3)]


def assert_same(runs, expected) -> None:
    for run, other in zip(runs, expected, strict=True):
        assert run.spec == other.spec
        assert run.finished
        assert run.steps == other.steps
        for step in run.steps:
            ours, theirs = dict(run.model(step).named_parameters()), dict(other.model(step).named_parameters())
            for name in ours:
                torch.testing.assert_close(ours[name], theirs[name], atol=1e-9, rtol=0)
        moments, others = read_state(run).moments, read_state(other).moments
        for name, values in moments.items():
            assert values["step"] == others[name]["step"] == (90 if name == "pos_embed.W_pos" else 100)
        for name, values in run.metrics().items():
            assert values.values.tolist() == pytest.approx(other.metrics()[name].values.tolist(), abs=1e-8), name


def test_seeds_that_train_together_equal_seeds_that_train_alone(tmp_path, alone):
    runs = train_together([run.spec for run in alone], [tmp_path / str(i) for i in range(3)])
    assert_same(runs, alone)


@pytest.mark.full
def test_ensembles_continue_from_different_steps(tmp_path, alone, stop_at):
    specs, paths = [run.spec for run in alone], [tmp_path / str(i) for i in range(3)]
    train(specs[1], paths[1])
    for stop, chosen in ((40, [0]), (70, [0, 2])):
        stop_at(stop)
        with pytest.raises(Stopped):
            train_together([specs[i] for i in chosen], [paths[i] for i in chosen])
    stop_at(None)
    assert [last_step(open_run(path)) for path in paths] == [25, 100, 50]
    assert_same(train_together(specs, paths), alone)


def test_seeds_with_a_common_split_train_together(tmp_path):
    specs = [small_spec(seed=s, changes={"task.split_seed": 0, "recipe.n_steps": 30}) for s in range(2)]
    assert all(run.finished for run in train_together(specs, [tmp_path / "a", tmp_path / "b"]))


@pytest.mark.full
@pytest.mark.parametrize("step", [STOPS[2]])
def test_a_run_by_sgd_that_was_interrupted_ends_with_the_same_bytes(tmp_path, stop_at, step):
    spec = small_spec(changes={"recipe.optimizer": "sgd", "recipe.learning_rate": 0.1})
    expected = contents(train(spec, tmp_path / "whole").path)
    stop_at(step)
    with pytest.raises(Stopped):
        train(spec, tmp_path / "cut")
    stop_at(None)
    assert contents(train(spec, tmp_path / "cut").path) == expected


# ---- early stopping

FAST = {"model.dtype": "float64", "recipe.n_steps": 150, "recipe.batch_size": 128, "recipe.learning_rate": 1e-2}
RISING = {**FAST, "task.n_subjects": 4, "task.n_relations": 4, "recipe.stop_at": None}
ENOUGH = 0.8


def lowest_skill(run) -> list[float]:
    found = run.metrics()
    return np.min([found[f"test_{skill}"] for skill in run.spec.task.skills(monitored(run.spec.task))], 0).tolist()


def monitored(task):
    return task.monitor(8, split="test", generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Two seeds to their last step, where those that stop early end, and what to train for that."""
    path = tmp_path_factory.mktemp("stopped")
    runs = [train(small_spec("facts-narrow", seed=seed, changes=RISING), path / f"whole-{seed}") for seed in range(2)]
    ends = [next((10 * i for i, x in enumerate(lowest_skill(run)) if x >= ENOUGH), 150) for run in runs]
    assert 0 < min(ends) < max(ends)
    early = {**RISING, "recipe.stop_at": ENOUGH}
    return path, runs, ends, [small_spec("facts-narrow", seed=seed, changes=early) for seed in range(2)]


@pytest.mark.full
def test_training_ends_with_the_first_line_as_good_as_asked(stopped):
    path, wholes, ends, specs = stopped
    for spec, whole, end in zip(specs, wholes, ends, strict=True):
        lines = []
        run = train(spec, path / f"early-{spec.seed}", report=lines.append)
        assert run.finished
        assert run.last_step == run.steps[-1] == last_step(run) == run.metrics().step[-1] == end
        assert run.kept_steps == run.steps
        assert lines[-1].step == lines[-1].n_steps
        check_replicates([run])
        assert_equal_until(run, whole, end)
    assert read_state(run).step == ends[1]


def assert_equal_until(run, whole, end):
    expected = whole.metrics()
    for name, values in run.metrics().items():
        assert values.values.tolist() == expected[name].sel(step=slice(end)).values.tolist(), name


@pytest.mark.full
def test_seeds_that_end_early_leave_those_that_train_with_them(stopped):
    path, _, ends, specs = stopped
    together = train_together(specs, [path / f"together-{spec.seed}" for spec in specs])
    assert [run.last_step for run in together] == ends
    for run, spec in zip(together, specs, strict=True):
        alone = train(spec, path / f"early-{spec.seed}")
        for name, value in run.model().named_parameters():
            torch.testing.assert_close(value, dict(alone.model().named_parameters())[name], atol=1e-9, rtol=0)


def test_a_run_that_was_cut_between_its_end_and_the_mark_of_it_does_not_go_on(stopped):
    path, _, ends, specs = stopped
    run = train(specs[0], path / "cut")
    expected = contents(run.path)
    (run.path / "done").unlink()
    assert train(specs[0], path / "cut").last_step == ends[0]
    assert contents(run.path) == expected


def test_one_skill_is_not_enough(tmp_path):
    """Elimination is learned at once, recall not yet."""
    run = train(small_spec(changes={**FAST, "recipe.n_steps": 60, "recipe.stop_at": 0.5}), tmp_path / "run")
    assert run.last_step == 60
    assert run.metrics().test_elimination[-1] > 0.9


def test_early_stopping_needs_skills_with_an_accuracy(tmp_path):
    with pytest.raises(InputError, match=r"recipe.stop_at must be from 0 to 1"):
        small_spec(changes={"recipe.stop_at": 1.5})
    spec = preset("retrieval-2-1-layer", "quick", changes={"recipe.stop_at": 0.9})
    with pytest.raises(InputError, match=r"recipe.stop_at needs a task of tokens"):
        train(spec, tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_task_without_skills_is_never_good_enough(tmp_path, monkeypatch):
    spec = small_spec(changes={"recipe.n_steps": 20, "recipe.stop_at": 0.0, "recipe.checkpoint_steps": ()})
    monkeypatch.setattr(type(spec.task), "skills", lambda self, batch: {})
    assert train(spec, tmp_path / "run").last_step == 20


@pytest.mark.parametrize("metrics_every", [1, 50])
def test_training_stops_where_the_loss_is_not_finite_and_is_not_marked_as_finished(tmp_path, metrics_every):
    spec = small_spec(changes={"recipe.learning_rate": 1e30, "recipe.metrics_every": metrics_every})
    with pytest.raises(InputError, match=r"run from step 1 on; .*lower recipe.learning_rate") as refused:
        train(spec, tmp_path / "run")
    assert "\n" not in str(refused.value)
    run = open_run(tmp_path / "run")
    assert not run.finished
    assert run.steps == (0,)


def test_a_seed_that_diverges_stops_alone(tmp_path, monkeypatch):
    losses = Learner.losses

    def spoiled(self, *args):
        found = losses(self, *args)
        return found * torch.tensor([1.0, torch.nan]) if len(found) == 2 else found

    specs, paths = [small_spec(seed=seed) for seed in (0, 1)], [tmp_path / name for name in ("good", "bad")]
    monkeypatch.setattr(Learner, "losses", spoiled)
    with pytest.raises(InputError, match=r"bad from step 0 on"):
        train_together(specs, paths)
    assert [open_run(path).finished for path in paths] == [True, False]
    assert open_run(paths[0]).steps == specs[0].recipe.checkpoints
