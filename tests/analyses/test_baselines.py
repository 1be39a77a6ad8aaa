import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses import baselines
from mnemoscope.analyses.baselines import CONSTANT, gate, select_learned_skills, select_learners
from mnemoscope.core.presets import preset
from mnemoscope.models.building import build_untrained
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import random_model, seeded
from tests.toys import Brackets

TASK = PermutationLookup(repeat_ratio=0.5).for_seed(0)


def batch(task=TASK, n=64):
    return task.monitor(n, split="test", generator=seeded())


@pytest.fixture(scope="module")
def sequences():
    return batch()


def test_a_model_that_does_the_task_has_learned_every_skill(sequences):
    found = gate(dissociated(), TASK, sequences)
    assert found.learned.all()
    assert found.skill.values.tolist() == list(TASK.skills(sequences))
    assert (found.advantage.sel(baseline=CONSTANT) > 1).all()


def test_a_model_of_one_skill_has_learned_that_one(sequences):
    found = gate(elimination_only(), TASK, sequences)
    assert {str(skill): bool(found.learned.sel(skill=skill)) for skill in found.skill.values} == {
        "elimination": True,
        "recall": False,
    }


def test_an_untrained_model_has_learned_nothing(sequences):
    found = [
        gate(random_model(d_vocab=TASK.d_vocab, n_ctx=TASK.n_ctx, seed=seed), TASK, sequences) for seed in range(8)
    ]
    assert not any(bool(each.learned.any() or each.above_chance.any()) for each in found)


def test_the_best_guess_is_not_better_than_itself(sequences):
    """Logits that are the log-frequencies of a skill's answers: no advantage on that skill, to rounding."""
    model = random_model(d_vocab=TASK.d_vocab, n_ctx=TASK.n_ctx)
    for name, mask in TASK.skills(sequences).items():
        counts = torch.bincount(sequences.targets[mask], minlength=TASK.d_vocab).double()
        with torch.no_grad():
            model.unembed.W_U.zero_()
            model.unembed.b_U.copy_((counts / counts.sum()).clamp_min(1e-30).log())
        at = gate(model, TASK, sequences).sel(skill=name, baseline=CONSTANT)
        assert abs(float(at.advantage)) < 1e-6
        assert float(at.more_right) == 0
        assert not bool(at.better)


def says(task, batch, share):
    """A model that gives the right class of every sequence that share of the probability, and a constant model."""
    right = torch.nn.functional.one_hot(batch.targets, len(task.classes)).double()
    return (share * right + (1 - share) * (1 - right)).log()


@pytest.mark.parametrize(("share", "learned"), [(0.95, True), (0.5, False)])
def test_skills_with_one_answer_are_learned_by_models_that_tell_classes_apart(share, learned, monkeypatch):
    task, model = Brackets(), random_model(d_vocab=5, n_ctx=8)
    found = classes_of(task, says(task, task.sample(400, split="test", generator=seeded()), share), model, monkeypatch)
    assert found.learned.values.tolist() == [learned, learned]


def test_a_model_that_always_says_one_class_has_learned_none(monkeypatch):
    task, model = Brackets(), random_model(d_vocab=5, n_ctx=8)
    batch = task.sample(400, split="test", generator=seeded())
    always = torch.tensor([0.01, 0.99], dtype=torch.double).log().expand(*batch.inputs.shape, 2)
    assert not classes_of(task, always, model, monkeypatch).learned.any()


def classes_of(task, log_probs, model, monkeypatch):
    """The gate by class, of a model that gives these log-probabilities on the same sequences."""
    batch = task.sample(400, split="test", generator=seeded())
    by_class = {name: batch.scored & (batch.targets == i) for i, name in enumerate(task.classes)}
    monkeypatch.setattr(type(task), "skills", lambda self, batch: by_class)
    monkeypatch.setattr(type(task), "references", ())
    monkeypatch.setattr(baselines, "log_probs", lambda *_, **__: log_probs)
    return gate(model, task, batch)


def test_the_answer_is_no_baseline_and_others_are(sequences):
    found = gate(dissociated(), TASK, sequences)
    compared = found.advantage.notnull()
    assert not compared.sel(skill="recall", baseline=["bayes", "recall"]).any()
    assert compared.sel(skill="recall", baseline="elimination")
    assert compared.sel(skill="elimination", baseline="recall")
    assert not compared.sel(skill="elimination", baseline="elimination")


def test_vectors_are_compared_by_squared_error():
    spec = preset("retrieval-2-2-layers", "quick", 0)
    task, sequences = spec.task, batch(spec.task)

    def answers_like(name, monkeypatch):
        vectors = task.reference(sequences, name).nan_to_num(0).double()
        monkeypatch.setattr("mnemoscope.analyses.baselines.predicted_vectors", lambda model, batch: vectors)
        return gate(build_untrained(spec), task, sequences)

    with pytest.MonkeyPatch.context() as patched:
        chain, step = (answers_like(name, patched) for name in ("chain", "step"))
    assert chain.skill.values.tolist() == ["x1", "x2"]
    assert chain.learned.all()
    assert "more_right" not in chain
    assert not step.learned.any()
    assert not bool(step.better.sel(skill="x1", baseline="step"))
    assert bool(step.above_chance.sel(skill="x1"))


@pytest.fixture
def results():
    learned = xr.DataArray(
        [[True, True], [True, False], [False, False]],
        coords={"seed": [3, 4, 9], "skill": ["recall", "elimination"]},
        dims=("seed", "skill"),
    )
    values = xr.DataArray(np.arange(6.0).reshape(3, 2), coords=learned.coords, dims=learned.dims)
    tree = xr.DataTree.from_dict({f"seed-{seed}": xr.Dataset({"x": seed}) for seed in (3, 4, 9)})
    return {
        "gate": xr.Dataset(
            {"learned": learned, "above_chance": learned | [[False, False], [False, False], [True, False]]}
        ),
        "ablation": xr.Dataset({"accuracy": values, "n": ("skill", [1, 2])}),
        "truncation": xr.Dataset({"p": values.rename(skill="target")}),
        "patch_recall": xr.Dataset({"ratio": ("seed", [1.0, 2, 3])}, coords={"seed": [3, 4, 9]}),
        "paths": tree,
    }


def test_seeds_that_learned_nothing_are_left_out(results):
    found = select_learners(results)
    for name in ("gate", "ablation", "truncation", "patch_recall"):
        assert found[name].seed.values.tolist() == [3, 4]
    assert list(found["paths"].children) == ["seed-3", "seed-4"]


def test_seeds_that_only_beat_chance_stay_at_that_level(results):
    assert select_learners(results, "above_chance")["ablation"].seed.values.tolist() == [3, 4, 9]


def test_where_nobody_learned_all_stay(results):
    results["gate"] = results["gate"].assign(learned=results["gate"].learned & False)
    assert select_learners(results)["ablation"].seed.values.tolist() == [3, 4, 9]


@pytest.mark.parametrize(
    ("name", "variable", "dim"), [("ablation", "accuracy", "skill"), ("truncation", "p", "target")]
)
def test_numbers_of_seeds_without_the_skill_become_nan(results, name, variable, dim):
    found = select_learned_skills(select_learners(results))[name]
    assert found[variable].sel({dim: "recall"}).values.tolist() == [0, 2]
    assert np.isnan(
        found[variable]
        .sel(
            {dim: "elimination"},
        )
        .values
    ).tolist() == [False, True]


def test_results_of_one_skill_are_of_the_seeds_that_learned_it(results):
    results["patch_elimination"] = results["patch_recall"]
    found = select_learned_skills(select_learners(results))
    assert found["patch_recall"].ratio.values.tolist() == [1, 2]
    assert np.isnan(found["patch_elimination"].ratio.values).tolist() == [False, True]


def test_a_skill_that_nobody_learned_is_left_out(results):
    results["gate"] = results["gate"].assign(learned=results["gate"].learned & [False, True])
    found = select_learned_skills(results)
    assert found["ablation"].skill.values.tolist() == ["elimination"]
    assert found["truncation"].target.values.tolist() == ["elimination"]
    assert found["ablation"].n.values.tolist() == [2]
    assert "patch_recall" not in found
