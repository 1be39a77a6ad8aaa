"""The defaults of `BaseTask`, on a task that adds nothing but its sizes and its sequences."""

import dataclasses
import pickle
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

import mnemoscope as ms
from mnemoscope.core import metrics
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import Task, VectorTask
from tests.support import seeded


@dataclass(frozen=True, kw_only=True)
class FirstToken(ms.BaseTask):
    """Name the first of three tokens after the last."""

    name: ClassVar[str] = "first-token"

    n_tokens: int = 4
    split_seed: int | None = None
    other_seed: int | None = 7

    @property
    def d_vocab(self) -> int:
        return self.n_tokens

    @property
    def n_ctx(self) -> int:
        return 3

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> ms.Batch:
        tokens = torch.randint(self.n_tokens, (n, 3), generator=generator, device=generator.device)
        scored = torch.tensor([False, False, True], device=tokens.device).expand(n, -1)
        return ms.Batch(inputs=tokens, targets=tokens[:, :1].expand(-1, 3), scored=scored)


@dataclass(frozen=True, kw_only=True)
class FirstVector(ms.BaseTask):
    """Give the first of three numbers after every one."""

    name: ClassVar[str] = "first-vector"
    d_output: ClassVar[int] = 2
    parts: ClassVar[dict[str, slice]] = {"all of it": slice(0, 2)}

    @property
    def d_vocab(self) -> int:
        return 2

    @property
    def n_ctx(self) -> int:
        return 3

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> ms.Batch:
        inputs = torch.randn(n, 3, 2, generator=generator, device=generator.device)
        scored = torch.ones(n, 3, dtype=torch.bool, device=inputs.device)
        return ms.Batch(inputs=inputs, targets=inputs[:, :1].expand(-1, 3, -1), scored=scored, parts=self.parts)


TASK, VECTORS = FirstToken(), FirstVector()


@pytest.fixture
def batch() -> ms.Batch:
    return TASK.sample(20, split="train", generator=seeded())


# ---- what kind of thing it is


def test_what_inherits_satisfies_the_protocol():
    assert isinstance(TASK, Task)
    assert not isinstance(TASK, VectorTask)
    assert isinstance(VECTORS, VectorTask)


def test_the_base_adds_no_field_and_leaves_values_as_they_are():
    assert dataclasses.fields(ms.BaseTask) == ()
    assert [f.name for f in dataclasses.fields(TASK)] == ["n_tokens", "split_seed", "other_seed"]
    assert repr(TASK) == "FirstToken(n_tokens=4, split_seed=None, other_seed=7)"
    assert vars(TASK) == {"n_tokens": 4, "split_seed": None, "other_seed": 7}
    assert FirstToken() == TASK != FirstToken(n_tokens=5)
    assert hash(FirstToken()) == hash(TASK)
    assert pickle.loads(pickle.dumps(TASK)) == TASK
    with pytest.raises(dataclasses.FrozenInstanceError):
        TASK.n_tokens = 5  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("missing", ["d_vocab", "n_ctx", "sample"])
def test_sizes_and_sequences_have_no_default(missing):
    rest = {name: vars(FirstToken)[name] for name in ("d_vocab", "n_ctx", "sample") if name != missing}
    with pytest.raises(TypeError, match=missing):
        type("Unfinished", (ms.BaseTask,), rest)()


def test_a_task_that_is_not_frozen_is_refused():
    with pytest.raises(TypeError, match="non-frozen"):
        dataclass(type("Loose", (ms.BaseTask,), {}))


# ---- the defaults


def test_class_variables():
    assert (TASK.references, TASK.corruptions, TASK.slot_size) == ((), (), 1)


def test_all_tokens_are_answers_and_no_vector_is():
    assert TASK.answers == range(4)
    assert VECTORS.answers == ()


def test_a_seed_takes_the_place_of_none_in_the_fields_of_seeds():
    assert TASK.for_seed(3) == FirstToken(split_seed=3)
    fixed = FirstToken(split_seed=5)
    assert fixed.for_seed(3) is fixed
    assert VECTORS.for_seed(3) is VECTORS


def test_sequences_are_not_enumerated():
    with pytest.raises(InputError, match="the sequences of first-token cannot be enumerated; draw samples"):
        TASK.enumerate(split="train")


def test_a_sample_of_equal_weights_is_monitored():
    sampled = TASK.sample(8, split="test", generator=seeded(2))
    monitored = TASK.monitor(8, split="test", generator=seeded(2))
    assert torch.equal(monitored.inputs, sampled.inputs)
    assert monitored.weights is not None
    assert monitored.weights.tolist() == [1 / 8] * 8


def test_there_are_no_pairs_and_no_exact_predictors(batch):
    with pytest.raises(InputError, match="first-token makes no minimal pairs; got kind 'other'"):
        TASK.corrupt(batch, kind="other", generator=seeded())
    with pytest.raises(InputError, match="first-token has no exact predictors; got reference 'best'"):
        TASK.reference(batch, "best")


def test_the_loss_of_tokens_is_the_cross_entropy_at_scored_positions(batch):
    logits = torch.randn(20, 3, 4, generator=seeded(1))
    expected = torch.nn.functional.cross_entropy(logits[:, 2], batch.targets[:, 2])
    assert float(TASK.loss(logits, batch)) == pytest.approx(float(expected))
    nothing = dataclasses.replace(batch, scored=torch.zeros_like(batch.scored))
    assert float(TASK.loss(logits, nothing)) == 0


def test_the_loss_of_vectors_is_their_squared_error():
    batch = VECTORS.sample(5, split="train", generator=seeded())
    some = dataclasses.replace(batch, scored=batch.scored & (torch.arange(3) == 1))
    outputs = torch.randn(5, 3, 2, generator=seeded(1))
    expected = torch.nn.functional.mse_loss(outputs[:, 1], batch.targets[:, 1])
    assert float(VECTORS.loss(outputs, some)) == pytest.approx(float(expected))


def test_the_losses_of_several_runs_are_computed_at_once(batch):
    logits = torch.randn(2, 20, 3, 4, generator=seeded(1))
    both = torch.func.vmap(lambda each: TASK.loss(each, batch))(logits)
    assert both.tolist() == pytest.approx([float(TASK.loss(each, batch)) for each in logits])


def test_there_are_no_subgroups_and_one_skill_of_tokens(batch):
    assert TASK.subgroups(batch) == VECTORS.subgroups(batch) == {}
    assert list(TASK.skills(batch)) == ["answer"]
    assert torch.equal(TASK.skills(batch)["answer"], batch.scored)
    assert VECTORS.skills(VECTORS.sample(5, split="train", generator=seeded())) == {}


# ---- everything takes it


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setitem(ms.TASKS._items, FirstToken.name, FirstToken)
    spec = ms.RunSpec(
        task=TASK.for_seed(0),
        model=ms.ModelSpec(d_model=16, n_heads=1),
        recipe=ms.Recipe(name="short", n_steps=30, batch_size=64, learning_rate=1e-2, metrics_every=10),
        seed=0,
    )
    return ms.train(spec, tmp_path / "run")


def test_the_smallest_task_trains_and_is_analysed(run, batch):
    opened = ms.open_run(run.path)
    assert opened.spec.task == FirstToken(split_seed=0)
    found = run.metrics()
    assert set(found) == {
        f"{split}_{name}" for split in ("train", "test") for name in ("loss", "loss_answer", "answer")
    }
    assert float(found.test_loss[-1]) < float(found.test_loss[0])
    evaluated = ms.evaluate(run.model(), TASK, batch)
    with torch.no_grad():
        expected = metrics.cross_entropy(run.model()(batch.inputs), batch.targets)[:, 2].mean()
    assert float(evaluated.loss.sel(subgroup="all").mean()) == pytest.approx(float(expected), rel=1e-5)
    removed = ms.ablate(run.model(), batch, skills=TASK.skills(batch), reference=batch, kinds=["mean"])
    assert removed.component.values.tolist() == ["L0H0", "L0 MLP"]
    assert removed.skill.values.tolist() == ["answer"]
