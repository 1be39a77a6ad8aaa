import math

import numpy as np
import pytest
import torch

from mnemoscope.models import constructed
from mnemoscope.models.run import read_trajectory, trajectory_text
from mnemoscope.systems.in_context_bigrams.analyses import (
    accuracy_by_class,
    induction_memories,
    pattern_costs,
    trajectory,
)
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import prompts
from mnemoscope.systems.in_context_bigrams.analyses.trajectory import RECALLED
from mnemoscope.systems.in_context_bigrams.tasks import NoisyRecall
from tests.support import global_generators_untouched, random_model
from tests.systems.in_context_bigrams.analyses.test_evaluation import TASK

GROUPS = ("in_context", "first", "second", "later", "global")
NAMES = {
    *(f"{name}_{group}" for name in ("loss", "accuracy") for group in GROUPS),
    *(f"accuracy_in_context_{name}" for name in ("no_loops", "bigram_outputs", "uniform_outputs")),
    *(f"{kind}_{name}" for kind in ("recall", "matched") for name in RECALLED),
    *("feed_forward_kl", "previous_token_score", "induction_score", "attends_after_triggers"),
    *("cost_uniform_layer0", "cost_uniform_layer1", "cost_exact_previous"),
}


def undefined(found):
    return {str(name) for name in found if math.isnan(found[name])}


def test_of_the_planted_circuit():
    with global_generators_untouched():
        found = trajectory(constructed.induction(6, 12), TASK, seed=0)
    assert set(found.data_vars) == NAMES
    assert undefined(found) == {"feed_forward_kl"}
    for name in ("accuracy_in_context", "accuracy_in_context_no_loops", "accuracy_in_context_bigram_outputs"):
        assert found[name] == 1
    for name in RECALLED:
        assert found[f"recall_{name}"] == found[f"matched_{name}"] == 1
    assert found.previous_token_score == pytest.approx(1)
    assert found.induction_score == pytest.approx(1)
    assert found.cost_exact_previous == 0
    assert found.cost_uniform_layer0 > 0.2 < found.cost_uniform_layer1


def test_numbers_are_those_of_the_analyses():
    model = random_model(d_vocab=6, n_ctx=12, n_layers=2, n_heads=1, d_model=6)
    found, batch = trajectory(model, TASK, seed=5), prompts(TASK, 5, 32)
    assert found.accuracy_later == accuracy_by_class(model, batch)["later"]
    changed = accuracy_by_class(model, prompts(TASK, 5, 32, outputs="bigram", held_out=0.0))["in_context"]
    assert found.accuracy_in_context_bigram_outputs == changed
    assert found.accuracy_in_context_uniform_outputs == found.accuracy_in_context
    costs = pattern_costs(model, batch).accuracy_cost.sel(position_class="in_context")
    for name, component, pattern in (
        ("cost_uniform_layer0", "L0", "uniform"),
        ("cost_uniform_layer1", "L1", "uniform"),
        ("cost_exact_previous", "L0", "previous token"),
    ):
        assert found[name] == pytest.approx(float(costs.sel(component=component, pattern=pattern)))
    recalled = induction_memories(model).recall
    assert found.recall_previous_token == recalled.sel(memory="previous token")
    assert found.recall_previous_token_early == recalled.sel(memory="previous token, early")
    assert found.recall_copied_token == recalled.sel(memory="copied token")


def test_what_a_model_or_task_lacks_is_undefined():
    layer = {f"{kind}_{name}" for kind in ("recall", "matched") for name in RECALLED}
    found = trajectory(random_model(d_vocab=6, n_ctx=12), TASK, seed=0)
    assert undefined(found) == {*layer, "cost_uniform_layer1"}
    noisy = NoisyRecall(length=12, n_tokens=5, n_triggers=2)
    found = trajectory(random_model(d_vocab=6, n_ctx=12, n_layers=2), noisy, seed=0)
    assert undefined(found) == {"accuracy_in_context_bigram_outputs", "accuracy_in_context_uniform_outputs"}


def test_checkpoints_see_the_same_sequences_and_files_keep_them():
    model = random_model(d_vocab=6, n_ctx=12)
    one, again = (trajectory(model, TASK, seed=2) for _ in range(2))
    assert one.identical(again)
    along = one.expand_dims(step=[0])
    back = read_trajectory(trajectory_text(along))
    np.testing.assert_allclose(back.to_array(), along.to_array(), rtol=1e-6)


def test_the_best_head_is_read_where_there_are_several():
    model = constructed.induction(6, 12)
    with torch.no_grad():
        for block in model.blocks:
            for weight in (block.attn.W_Q, block.attn.W_K, block.attn.W_V, block.attn.W_O, block.attn.b_Q):
                weight.copy_(weight.flip(0))
    assert trajectory(model, TASK, seed=0).recall_remapped_copy == 1
