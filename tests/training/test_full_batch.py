"""Training on all sequences at every step."""

import pytest
import torch

import mnemoscope as ms
from mnemoscope import InputError, ModelSpec, Recipe, RunSpec
from mnemoscope.models.independence import check_replicates
from mnemoscope.models.run import open_run
from mnemoscope.training.loop import train, train_together
from mnemoscope.training.replay import replay
from mnemoscope.training.schedule import TrainingBatches, check_schedules
from tests.support import contents
from tests.toys import Sums, registered

RECIPE = Recipe(
    n_steps=40, full_batch=True, weight_decay=1.0, warmup_steps=5, decay="linear", final_rate=1e-4, metrics_every=10,
    save_every=15, beta2=0.98,
)  # fmt: skip
MODEL = ModelSpec(
    d_model=8, n_heads=2, normalization="none", initialisation="by-width", attention_mix=0.5,
    attention_dir="bidirectional",
)  # fmt: skip


@pytest.fixture(autouse=True)
def toys():
    with registered(Sums):
        yield


def spec(seed: int = 0, **fields) -> RunSpec:
    return RunSpec(task=Sums(**fields).for_seed(seed), model=MODEL, recipe=RECIPE, seed=seed)


def test_every_step_sees_the_same_sequences_without_a_copy():
    data = TrainingBatches([spec(3)])
    first, later = data.batch(0), data.batch(17)
    assert all(one is other for one, other in zip(first, later, strict=True))
    assert torch.equal(first.inputs[0], spec(3).task.enumerate(split="train").inputs)
    other = TrainingBatches([spec(4)]).batch(0)
    assert not torch.equal(first.inputs, other.inputs), "the split follows the seed"
    both = TrainingBatches([spec(3), spec(4)]).batch(5)
    assert torch.equal(both.inputs, torch.cat((first.inputs, other.inputs)))
    assert torch.equal(TrainingBatches([spec(3), spec(4)]).select_runs([1]).batch(2).inputs, other.inputs)


def test_a_run_that_was_interrupted_ends_with_the_same_bytes(tmp_path, monkeypatch):
    whole = train(spec(), tmp_path / "whole")
    original = TrainingBatches.batch

    def batch(self, step):
        if step == 33:
            raise KeyboardInterrupt
        return original(self, step)

    monkeypatch.setattr(TrainingBatches, "batch", batch)
    with pytest.raises(KeyboardInterrupt):
        train(spec(), tmp_path / "cut")
    monkeypatch.undo()
    train(spec(), tmp_path / "cut")
    assert contents(tmp_path / "cut") == contents(whole.path)
    assert replay(open_run(whole.path), 12).exact
    assert whole.metrics().train_loss[-1] < whole.metrics().train_loss[0]


@pytest.mark.full
def test_seeds_train_together_as_they_train_alone(tmp_path):
    specs = [spec(seed) for seed in (0, 1)]
    together = train_together(specs, [tmp_path / f"together-{seed}" for seed in (0, 1)])
    check_replicates(together)
    for run, one in zip(together, specs, strict=True):
        alone = train(one, tmp_path / f"alone-{one.seed}")
        for name, value in alone.model().named_parameters():
            torch.testing.assert_close(dict(run.model().named_parameters())[name], value, atol=1e-4, rtol=1e-3)


def test_it_is_plain_full_batch_descent(tmp_path):
    run = train(spec(), tmp_path)
    model, batch = run.model(0), spec().task.enumerate(split="train")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0, betas=(0.9, 0.98), weight_decay=1.0)
    held = [value for name, value in model.named_parameters() if ".attn.b_" in name or name == "unembed.b_U"]
    for value in held:
        value.requires_grad_(False)
    for step in range(40):
        optimizer.param_groups[0]["lr"] = 1e-3 * (step + 1) / 5 if step < 5 else 1e-4 + 9e-4 * (1 - (step - 5) / 35)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch.inputs)[:, 1], batch.targets[:, 1]).backward()
        optimizer.step()
    for name, value in run.model().named_parameters():
        torch.testing.assert_close(value, dict(model.named_parameters())[name], atol=1e-5, rtol=1e-4)


def test_what_cannot_be_listed_or_differs_in_weight_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"recipe.full_batch needs sequences of equal weight; those of toy-sums"):
        train(spec(repeats=2), tmp_path / "weighted")
    assert not (tmp_path / "weighted").exists()
    unlisted = ms.preset("k-hop-2", "quick", 0, changes={"recipe.full_batch": True})
    with pytest.raises(InputError, match="cannot be enumerated; draw samples"):
        check_schedules(unlisted)
