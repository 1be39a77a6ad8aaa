from dataclasses import replace

import numpy as np
import pytest
import torch

from mnemoscope.analyses.ablation import ablate
from mnemoscope.analyses.roles import ablate_by_role, choose_roles, split_halves
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


def test_the_halves_are_disjoint_and_hold_both_subgroups():
    batch = prompts(50)
    first, second = split_halves(batch)
    assert torch.equal(torch.stack((first.inputs, second.inputs), 1).flatten(0, 1), batch.inputs)
    for half in (first, second):
        assert [int(mask.sum()) for mask in TASK.subgroups(half).values()] == [25, 25]


def test_roles_follow_what_the_heads_are_needed_for(planted):
    batch = everything()
    assert choose_roles(planted, batch, skills=FRESH.skills(batch), reference=batch, skill="elimination") == {
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
    first = choose_roles(random_model(**fields), batch, skills=TASK.skills(batch), reference=reference)
    second = choose_roles(exchange_heads(random_model(**fields)), batch, skills=TASK.skills(batch), reference=reference)
    last = random_model(**fields).cfg.n_heads - 1
    turned = {f"{name[:3]}{last - int(name[3:])}" if "H" in name else name: role for name, role in second.items()}
    assert turned == first
    n_heads = (last + 1) * fields.get("n_layers", 1)
    others = ["other head"] if n_heads == 2 else [f"other head {i}" for i in range(1, n_heads)]
    mlps = [f"L{layer} MLP" for layer in range(fields.get("n_layers", 1))]
    assert sorted(first.values()) == sorted(["elimination head", *others, *mlps])


def test_roles_are_ordered_by_the_loss_of_log_probability():
    model, batch = random_model(n_heads=4), prompts()
    named = choose_roles(model, batch, skills=TASK.skills(batch), reference=batch)
    result = ablate(model, batch, skills=TASK.skills(batch), reference=batch, kinds=("mean",))
    cost = result.log_prob.sel(kind="mean", skill="elimination")
    by_role = {named[name]: float(cost.sel(component=name)) for name in named if "H" in name}
    order = ["elimination head", "other head 1", "other head 2", "other head 3"]
    assert [by_role[role] for role in order] == sorted(by_role.values())


def test_a_single_head_is_the_head():
    batch = prompts(20)
    named = choose_roles(random_model(n_heads=1), batch, skills=TASK.skills(batch), reference=batch)
    assert named == {"L0H0": "the head", "L0 MLP": "L0 MLP"}


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
    named = choose_roles(model, selection, skills=TASK.skills(selection), reference=reference)
    assert {str(result.component.sel(role=role).item()): role for role in result.role.values.tolist()} == named
    expected = ablate(model, test, skills=TASK.skills(test), reference=reference, kinds=("mean",)).sel(kind="mean")
    np.testing.assert_array_equal(result.clean_log_prob, expected.clean_log_prob)
    np.testing.assert_array_equal(
        result.log_prob.sel(kind="mean"), expected.log_prob.sel(component=result.component.values)
    )


@pytest.mark.slow
def test_elimination_needs_the_head_that_is_named_after_it_in_v3(learned_v3):
    result = ablate_by_role(learned_v3.model(), learned_v3.spec.task).sel(kind="mean", skill="elimination")
    assert result.clean_accuracy > 0.99
    assert result.accuracy.sel(role="elimination head") < 0.5


def test_a_skill_that_the_task_has_not_is_refused():
    batch = prompts(10)
    with pytest.raises(InputError, match="skill must be one of: elimination, recall; got 'guessing'"):
        choose_roles(random_model(), batch, skills=TASK.skills(batch), reference=batch, skill="guessing")
