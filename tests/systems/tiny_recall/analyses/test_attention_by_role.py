"""Where heads look on unseen mappings, by role."""

import numpy as np
import pytest
import torch

from mnemoscope.analyses.evaluation import every_sequence
from mnemoscope.models.subjects import Subject
from mnemoscope.systems.tiny_recall.analyses.attention import (
    attention_by_role,
    evenness,
    heads_by_need,
    on_earlier_y,
    on_itself,
    on_y_before,
    unseen_halves,
)
from mnemoscope.systems.tiny_recall.constructed import dissociated
from mnemoscope.systems.tiny_recall.constructed import local_binding as binding_model
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import random_model

TASK = PermutationLookup(repeat_ratio=0.3).for_seed(0)
SMALL = PermutationLookup(n_values=4, repeat_ratio=0.3).for_seed(0)


def with_heads_exchanged(model):
    with torch.no_grad():
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            weight = getattr(model.blocks[0].attn, name)
            weight.copy_(weight.flip(0).clone())
    return model


def test_halves_share_no_mapping_and_make_up_everything():
    halves = unseen_halves(TASK)
    shown = [{tuple(row) for row in half.latents["mapping"].tolist()} for half in halves]
    assert not shown[0] & shown[1]
    assert len(shown[0]) == len(shown[1]) == 12
    both = torch.cat([half.inputs for half in halves])
    everything = every_sequence(TASK).inputs
    assert sorted(both.tolist()) == sorted(everything.tolist())


@pytest.mark.parametrize("exchanged", [False, True])
def test_roles_follow_the_head_and_not_its_number(exchanged):
    model = binding_model(4)
    subject = Subject(model=with_heads_exchanged(model) if exchanged else model, task=SMALL, seed=0)
    order = ["L0H1", "L0H0"] if exchanged else ["L0H0", "L0H1"]
    assert heads_by_need(subject) == dict(zip(order, ("elimination head", "other head"), strict=True))
    heads = attention_by_role(subject)
    assert heads.component.values.tolist() == order
    np.testing.assert_allclose(on_earlier_y(heads), 1)
    np.testing.assert_allclose(evenness(heads), 1)
    np.testing.assert_allclose(on_y_before(heads), 1)
    np.testing.assert_allclose(on_itself(heads), 1)
    assert float(on_earlier_y(heads, role=1).mean()) == pytest.approx(1)  # the y just before is an earlier y
    assert float(evenness(heads, role=1)[-1]) == pytest.approx(1 / 3)
    np.testing.assert_allclose(on_y_before(heads, role=0), [1, 1 / 2, 1 / 3])
    np.testing.assert_allclose(on_itself(heads, role=0), [1, 1 / 2, 1 / 3])


@pytest.mark.parametrize("subgroup", ["all", "fresh", "repeat"])
def test_even_attention_by_hand(subgroup):
    model = random_model(n_ctx=9)
    with torch.no_grad():
        model.blocks[0].attn.W_Q.zero_()
        model.blocks[0].attn.b_Q.zero_()
    heads = attention_by_role(Subject(model=model, task=TASK, seed=0))
    share = [1 / 3, 2 / 5, 3 / 7, 4 / 9]  # from x of slot s on s - 1 earlier y among 2s - 1 keys
    np.testing.assert_allclose(on_earlier_y(heads, subgroup=subgroup), share, rtol=1e-6)
    np.testing.assert_allclose(evenness(heads, subgroup=subgroup), share, rtol=1e-6)
    np.testing.assert_allclose(on_itself(heads), [1 / 2, 1 / 4, 1 / 6, 1 / 8], rtol=1e-6)
    np.testing.assert_allclose(on_y_before(heads), [1 / 3, 1 / 5, 1 / 7, 1 / 9], rtol=1e-6)


def test_subgroups_are_told_apart():
    heads = attention_by_role(Subject(model=dissociated(), task=TASK, seed=0))
    fresh, repeat = (on_earlier_y(heads, role=1, subgroup=name) for name in ("fresh", "repeat"))
    np.testing.assert_allclose(fresh[:-1], repeat[:-1], rtol=1e-6)  # until the last x they are the same sequences
    assert abs(float(fresh[-1] - repeat[-1])) > 1e-3


def test_a_single_head_is_the_head():
    subject = Subject(model=random_model(n_heads=1), task=TASK, seed=0)
    assert heads_by_need(subject) == {"L0H0": "the head"}
