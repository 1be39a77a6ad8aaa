"""The files of examples: a task, two analyses, a claim with its test and a configuration file."""

import importlib.util
import math
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

from mnemoscope.analyses.ablation import ablate
from mnemoscope.analyses.evaluation import evaluate_splits
from mnemoscope.claims.claim import CLAIMS
from mnemoscope.cli.parse import parse_changes, parse_seeds, read_config
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import PRESETS, SYSTEMS, preset
from mnemoscope.core.protocols import Task
from mnemoscope.core.specification import TASKS
from mnemoscope.models.run import open_run
from mnemoscope.systems.tiny_recall.constructed import shared_store
from mnemoscope.training.loop import train
from tests.support import seeded
from tests.systems.on_trial import trouble, verdict

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples"


def load(name: str):
    """The module of an example, imported by path."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]  # and nothing else: what the example imported stays
    return module


@pytest.fixture(scope="module")
def example():
    """The task's module; what it registers is forgotten afterwards."""
    for registry in (TASKS, PRESETS, SYSTEMS):
        registry.names()  # the built-in ones are there before
    with mock.patch.dict(TASKS._items), mock.patch.dict(PRESETS._items), mock.patch.dict(SYSTEMS._items):
        yield load("copy_task")


@pytest.fixture(scope="module")
def run(example, tmp_path_factory):
    spec = preset("copy-small", "quick", 3, changes={"recipe.n_steps": 30, "recipe.metrics_every": 10})
    return train(spec, tmp_path_factory.mktemp("copy") / "run")


def words(batch) -> set[tuple[int, ...]]:
    return {tuple(word) for word in batch.latents["word"].tolist()}


def test_the_task_satisfies_the_protocol_and_is_registered(example):
    task = TASKS.get("copy")(n_letters=3, length=2)
    assert isinstance(task, Task)
    assert SYSTEMS.get("copying").quick[0].presets == ("copy-small",)
    with pytest.raises(InputError, match="n_letters must be from 2 to 9"):
        example.Copy(n_letters=1)


def test_the_task_samples_words_and_their_copies(example):
    task = example.Copy().for_seed(1)
    batch = task.sample(200, split="train", generator=seeded())
    word = batch.latents["word"]
    assert batch.inputs.shape == (200, task.n_ctx)
    assert (batch.inputs[:, 3] == 0).all()
    assert torch.equal(batch.inputs[:, :3], word)
    assert torch.equal(batch.targets[batch.scored].view(200, 3), word)
    assert words(batch) <= words(task.enumerate(split="train"))


def test_the_split_of_the_task_covers_all_words_without_overlap(example):
    task = example.Copy().for_seed(1)
    train_words, test_words = (words(task.enumerate(split=split)) for split in ("train", "test"))
    assert len(train_words) == 51
    assert len(test_words) == 13
    assert not train_words & test_words
    assert train_words != words(example.Copy().for_seed(2).enumerate(split="train"))


def test_the_counterfactual_changes_the_first_answer_only(example):
    task = example.Copy().for_seed(1)
    clean = task.sample(200, split="test", generator=seeded())
    changed = task.corrupt(clean, kind="change_first", generator=seeded(1))
    differs = (clean.targets != changed.targets)[clean.scored].view(200, 3)
    assert differs.all(0).tolist() == [True, False, False]
    assert differs.any(0).tolist() == [True, False, False]


def test_the_task_trains_and_the_run_opens_again(run):
    assert open_run(run.path).spec == run.spec
    assert run.steps[-1] == 30
    metrics = run.metrics()
    assert metrics.step.values.tolist() == [0, 10, 20, 30]
    assert set(metrics) == {
        f"{split}_{name}" for split in ("train", "test") for name in ("loss", "loss_copying", "copying")
    }
    assert float(metrics.train_loss[-1]) < float(metrics.train_loss[0])


def test_analyses_of_any_task_take_the_run(run):
    model, task = run.model(), run.spec.task
    result = evaluate_splits(model, task)
    assert (result.floor == 0).all()
    assert (result.loss > 0).all()
    batch = task.sample(50, split="test", generator=seeded())
    removed = ablate(model, batch, skills=task.skills(batch), reference=batch, kinds=("mean",))
    assert removed.component.values.tolist() == ["L0H0", "L0 MLP"]
    assert removed.skill.values.tolist() == ["copying"]


def test_the_entropy_of_known_models(example, run):
    entropy = load("entropy").entropy
    model, task = run.model(), run.spec.task
    batch = task.sample(20, split="test", generator=seeded())
    with torch.no_grad():
        model.unembed.W_U.zero_()
        model.unembed.b_U.zero_()
    uniform = entropy(model, task, batch)
    assert uniform.pos.values.tolist() == [3, 4, 5]
    assert uniform.values == pytest.approx(math.log(task.d_vocab))
    with torch.no_grad():
        model.unembed.b_U[2] = 1000
    assert entropy(model, task, batch).values == pytest.approx(0)


def test_the_configuration_file_is_accepted():
    sections = read_config(EXAMPLES / "config.yaml")
    assert parse_seeds(sections["train"]["seeds"]) == [0, 1, 2, 3]
    assert parse_changes(sections["train"]["set"]) == {"model.normalization": "none"}


def test_a_hook_based_analysis_of_one_s_own_in_thirty_lines():
    source = (EXAMPLES / "knocked_out.py").read_text()
    assert len(source.splitlines()) <= 30
    task = preset("v3", "quick", 0, changes={}).task
    batch = task.sample(200, split="test", generator=seeded())
    batch = batch.select(batch.latents["is_repeat"])
    place = load("knocked_out").knocked_out
    rise = place(shared_store(), batch, "source_pos")  # head 1 says where the same x stood
    assert rise.dims == ("layer", "head", "prompt")
    assert (rise.sel(layer=0, head=1) > 5).all()
    assert (abs(rise.sel(layer=0, head=0)) < 1e-3).all()
    fresh = task.sample(200, split="test", generator=seeded())
    fresh = fresh.select(~fresh.latents["is_repeat"])
    assert (place(shared_store(), fresh, "source_pos") == 0).all()  # no such place, nothing is knocked out


def test_the_claim_of_the_tutorial_can_be_met_and_missed(monkeypatch):
    """A head that stores all values meets it, two heads that do the same work meet the rival, a head at .8 neither."""
    monkeypatch.syspath_prepend(EXAMPLES)
    CLAIMS.names()  # the built-in ones are there before
    with mock.patch.dict(CLAIMS._items):
        example = importlib.import_module("one_head_carries")
    sys.modules.pop("one_head_carries")
    claim, rival = example.CLAIM, example.RIVAL
    assert trouble(claim) is None
    assert trouble(rival) is None
    one, twins = (example.BY_HAND[name](0)["v3"] for name in ("one stores", "twins"))
    assert verdict(claim, example.measure(one)).outcome == "SUPPORTED"
    assert verdict(rival, example.measure(one)).outcome == "REFUTED"
    assert verdict(claim, example.measure(twins)).outcome == "NOT_APPLICABLE"  # they do not recall
    shared = {"gate": 1.0, "chosen": 0.5, "second": 0.5, "effect": 0.5}
    assert verdict(claim, shared).outcome == "REFUTED"
    assert verdict(rival, shared).outcome == "SUPPORTED"
    assert verdict(claim, shared | {"effect": 0.8}).outcome == "INCONCLUSIVE"


def test_the_test_of_the_example_claim_passes(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    CLAIMS.names()  # the built-in ones are there before
    with mock.patch.dict(CLAIMS._items):
        example = load("test_even_attention")
        assert CLAIMS.get("even-attention") is example.CLAIM
    sys.modules.pop("even_attention")
    for claim in (example.CLAIM, example.RIVAL):
        example.test_controls_behave(claim)
        example.test_planted_replicates_decide(claim)
    example.test_an_effect_at_the_margin_decides_nothing()
