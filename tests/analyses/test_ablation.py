import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from mnemoscope.analyses.ablation import ablate, ablate_by_role, roles, split_halves
from mnemoscope.analyses.evaluation import evaluate
from mnemoscope.core.errors import InputError
from mnemoscope.core.seeding import generator
from tests.support import random_model, seeded, small_spec

TASK = small_spec("v3").task
FRESH = small_spec("v1").task


def prompts(n: int = 300, seed: int = 0):
    return TASK.monitor(n, split="test", generator=seeded(seed))


def everything(copies: int = 1):
    """Every mapping in the order x = 1 2 3 4 5, without a repeat: each value is the answer equally often."""
    batch = replace(FRESH, shuffle_x=False).enumerate(split="all")
    return batch.select(batch.weights.nonzero()[:, 0].repeat(copies))


def test_the_hand_set_head_is_needed_for_elimination_and_the_other_is_not(planted):
    result = ablate(planted, FRESH, everything(20), reference=everything()).sel(skill="elimination")
    clean = -math.log(1 + 4 * math.exp(-10))
    assert (result.clean_accuracy, result.clean_log_prob) == (1, pytest.approx(clean, abs=1e-6))
    np.testing.assert_allclose(result.log_prob.sel(component="L0H1"), clean, atol=1e-6)
    np.testing.assert_allclose(result.accuracy.sel(component="L0H1"), 1)
    without = result.sel(component="L0H0").log_prob
    np.testing.assert_allclose(without.sel(kind=["zero", "mean"]), -math.log(5), atol=1e-4)  # all answers alike
    # another sequence's unused value: right with probability 1/5, 10 nats short otherwise
    assert float(without.sel(kind="resample")) == pytest.approx(clean - 4 / 5 * 10, abs=0.4)
    assert float(result.accuracy.sel(component="L0H0", kind="resample")) == pytest.approx(1 / 5, abs=0.04)


def test_a_skill_that_no_sequence_tests_is_undefined(planted):
    batch = FRESH.sample(20, split="test", generator=seeded())
    result = ablate(planted, FRESH, batch, reference=batch, kinds=("zero",))
    assert result.sel(skill="recall").to_array().isnull().all()
    assert result.kind.values.tolist() == ["zero"]


def test_clean_skills_are_those_of_the_evaluation():
    model, batch = random_model(), prompts()
    result = ablate(model, TASK, batch, reference=batch, kinds=("mean",))
    expected = evaluate(model, TASK, batch).isel(pos=-1)
    for skill, subgroup in (("elimination", "fresh"), ("recall", "repeat")):
        by_skill, by_group = result.sel(skill=skill), expected.sel(subgroup=subgroup)
        assert float(by_skill.clean_accuracy) == pytest.approx(float(by_group.accuracy))
        assert float(by_skill.clean_log_prob) == pytest.approx(-float(by_group.loss), abs=1e-6)


def test_an_ablated_skill_by_hand():
    model, batch = random_model(), prompts(50)
    result = ablate(model, TASK, batch, reference=batch, kinds=("zero",)).sel(kind="zero", component="L0 MLP")
    with torch.no_grad():
        model.blocks[0].mlp.W_out.zero_()
        model.blocks[0].mlp.b_out.zero_()
        answers = model(batch.inputs)[:, -1].log_softmax(-1)
    right = answers.gather(1, batch.targets[:, -1:])[:, 0]
    assert result.log_prob.values.tolist() == pytest.approx([right[:50].mean().item(), right[50:].mean().item()])
    correct = (answers.argmax(1) == batch.targets[:, -1]).double()
    assert result.accuracy.values.tolist() == pytest.approx([correct[:50].mean().item(), correct[50:].mean().item()])


def test_resampling_follows_its_seed():
    model, batch = random_model(), prompts(50)
    first, again, other = (
        ablate(model, TASK, batch, reference=batch, kinds=("resample",), seed=seed).log_prob for seed in (0, 0, 1)
    )
    assert first.equals(again)
    assert not first.equals(other)


def test_the_halves_are_disjoint_and_hold_both_subgroups():
    batch = prompts(50)
    first, second = split_halves(batch)
    assert torch.equal(torch.stack((first.inputs, second.inputs), 1).flatten(0, 1), batch.inputs)
    for half in (first, second):
        assert [int(mask.sum()) for mask in TASK.subgroups(half).values()] == [25, 25]


def test_roles_follow_what_the_heads_are_needed_for(planted):
    batch = everything()
    assert roles(planted, FRESH, batch, reference=batch, skill="elimination") == {
        "L0H0": "elimination head",
        "L0H1": "other head",
    }


def exchange_heads(model):
    """The same function with the heads of every layer in reverse order."""
    with torch.no_grad():
        for block in model.blocks:
            for name, value in block.attn.named_parameters():
                if name != "b_O":
                    value.copy_(value.flip(0))
    return model


@pytest.mark.parametrize("fields", [{}, {"n_heads": 4}, {"n_layers": 2}])
def test_roles_do_not_depend_on_the_numbers_of_heads(fields):
    batch, reference = prompts(), prompts(seed=1)
    first = roles(random_model(**fields), TASK, batch, reference=reference)
    second = roles(exchange_heads(random_model(**fields)), TASK, batch, reference=reference)
    last = random_model(**fields).cfg.n_heads - 1
    turned = {f"{name[:3]}{last - int(name[3:])}" if "H" in name else name: role for name, role in second.items()}
    assert turned == first
    n_heads = (last + 1) * fields.get("n_layers", 1)
    others = ["other head"] if n_heads == 2 else [f"other head {i}" for i in range(1, n_heads)]
    mlps = [f"L{layer} MLP" for layer in range(fields.get("n_layers", 1))]
    assert sorted(first.values()) == sorted(["elimination head", *others, *mlps])


def test_roles_are_ordered_by_the_loss_of_log_probability():
    model, batch = random_model(n_heads=4), prompts()
    named = roles(model, TASK, batch, reference=batch)
    cost = ablate(model, TASK, batch, reference=batch, kinds=("mean",)).log_prob.sel(kind="mean", skill="elimination")
    by_role = {named[name]: float(cost.sel(component=name)) for name in named if "H" in name}
    order = ["elimination head", "other head 1", "other head 2", "other head 3"]
    assert [by_role[role] for role in order] == sorted(by_role.values())


def test_a_single_head_is_the_head():
    batch = prompts(20)
    assert roles(random_model(n_heads=1), TASK, batch, reference=batch) == {"L0H0": "the head", "L0 MLP": "L0 MLP"}


def test_results_by_role_do_not_depend_on_the_numbers_of_heads():
    first, second = (ablate_by_role(m, TASK, n=200) for m in (random_model(), exchange_heads(random_model())))
    assert first.role.values.tolist() == second.role.values.tolist() == ["elimination head", "other head", "L0 MLP"]
    assert first.component.values.tolist()[:2] == second.component.values.tolist()[1::-1]
    for name in ("accuracy", "log_prob"):
        both = [result[name].sel(kind=["zero", "mean"]).values for result in (first, second)]
        np.testing.assert_allclose(*both, atol=1e-5)
    assert first.attrs["split"] == "test"


def test_roles_are_chosen_on_one_half_and_tested_on_the_other():
    model = random_model()
    batch = TASK.monitor(100, split="train", generator=generator(7, "prompts", "train"))
    reference = TASK.sample(100, split="train", generator=generator(7, "reference", "train"))
    selection, test = split_halves(batch)
    result = ablate_by_role(model, TASK, n=100, split="train", seed=7)
    named = roles(model, TASK, selection, reference=reference)
    assert {str(result.component.sel(role=role).item()): role for role in result.role.values.tolist()} == named
    expected = ablate(model, TASK, test, reference=reference, kinds=("mean",)).sel(kind="mean")
    np.testing.assert_array_equal(result.clean_log_prob, expected.clean_log_prob)
    np.testing.assert_array_equal(
        result.log_prob.sel(kind="mean"), expected.log_prob.sel(component=result.component.values)
    )


def test_a_model_that_is_too_small_is_refused():
    batch = prompts(5)
    with pytest.raises(InputError, match="the model has 5 tokens and the task 6"):
        ablate(random_model(d_vocab=5), TASK, batch, reference=batch)


@pytest.mark.slow
def test_elimination_needs_the_head_that_is_named_after_it_in_v3(learned_v3):
    result = ablate_by_role(learned_v3.model(), learned_v3.spec.task).sel(kind="mean", skill="elimination")
    assert result.clean_accuracy > 0.99
    assert result.accuracy.sel(role="elimination head") < 0.5
