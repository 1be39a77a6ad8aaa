"""Costs of removal on sequences over unseen mappings."""

import numpy as np
import pytest

from mnemoscope.analyses.ablation import ablate
from mnemoscope.analyses.evaluation import accuracy_by_skill, every_sequence
from mnemoscope.core.errors import InputError
from mnemoscope.models.subjects import Subject
from mnemoscope.systems.tiny_recall.analyses.removal_costs import ablation_effect, all_heads, all_mlps, skills_without
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import global_generators_untouched, random_model

TASK = PermutationLookup(n_values=4, repeat_ratio=0.3, split_seed=0)


def on(model, task=TASK):
    return Subject(model=model, task=task, seed=3)


def each_head(model):
    return {str(head): (head,) for head in all_heads(model)}


@pytest.mark.parametrize(("within", "latent"), [("is_repeat", "is_repeat"), ("all sequences", None)])
@pytest.mark.parametrize("kind", ["mean", "zero"])
def test_equals_ablate_on_all_sequences(kind, within, latent):
    model = random_model(d_vocab=5, n_ctx=7)
    targets = {**each_head(model), "both": all_heads(model), "MLP": all_mlps(model)}
    with global_generators_untouched():
        found = skills_without(on(model), targets, kind=kind, within=within)
    batch = every_sequence(TASK)
    skills = TASK.skills(batch)
    expected = ablate(model, batch, skills=skills, reference=batch, targets=targets, kinds=(kind,), within=latent)
    for name in ("accuracy", "log_prob", "clean_accuracy", "clean_log_prob"):
        truth = expected[name].sel(kind=kind) if "kind" in expected[name].dims else expected[name]
        assert np.allclose(found[name].transpose(*truth.dims), truth, atol=1e-6)
    assert found.clean_accuracy.to_series().to_dict() == accuracy_by_skill(on(model))


def test_what_a_known_circuit_loses():
    model = dissociated(4)
    without = skills_without(on(model), {**each_head(model), "nothing": ()})
    cost = ablation_effect(without).to_pandas()
    assert cost.loc["L0H0"].to_dict() == pytest.approx({"elimination": 0.75, "recall": 0})  # 1 of 4 is right by chance
    assert cost.loc["L0H1"].to_dict() == {"elimination": 0, "recall": 1}
    assert cost.loc["nothing"].to_dict() == {"elimination": 0, "recall": 0}
    probability = ablation_effect(without, metric="log_prob").sel(component="L0H0", skill="elimination")
    assert float(probability) == pytest.approx(0.75, abs=1e-3)  # p = 1/4 for every value


def test_a_share_of_the_sequences():
    model = random_model(d_vocab=5, n_ctx=7)
    first, again, other = (
        skills_without(Subject(model=model, task=TASK, seed=seed), each_head(model), n=20, kind="resample")
        for seed in (3, 3, 4)
    )
    assert first.equals(again)
    assert not first.equals(other)
    assert float(first.clean_accuracy.sel(skill="recall") * 20) % 1 == pytest.approx(0, abs=1e-9)


def test_tasks_without_repeats_have_a_mean_for_them_too():
    task = PermutationLookup(n_values=4, split_seed=0)
    model = elimination_only(4)
    assert not skills_without(on(model, task), each_head(model)).isnull().any().to_array().any()


def test_models_without_an_mlp():
    assert all_mlps(elimination_only(4)) == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"skills": ("juggling",)}, "a skill must be one of: elimination, recall"),
        ({"n": 0}, "n must be at least 1"),
    ],
)
def test_wrong_input_is_refused(arguments, message):
    model = elimination_only(4)
    with pytest.raises(InputError, match=message):
        skills_without(on(model), each_head(model), **arguments)
