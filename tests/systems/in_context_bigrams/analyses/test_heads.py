import math

import numpy as np
import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.core.patterns import Mechanism, checked_pattern, fixed
from mnemoscope.models import constructed
from mnemoscope.systems.in_context_bigrams.analyses import head_attention, pattern_costs, removal_costs
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import prompts
from mnemoscope.systems.in_context_bigrams.analyses.heads import EXACT_INDUCTION, MEASURES, logits_and_patterns
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import random_model, reads_back, seeded
from tests.systems.in_context_bigrams.analyses.test_evaluation import TASK, given

SEQUENCE = given(0, 1, 0, 1, 5, 0, 1, 4, triggers=[0, 4], outputs=[1, 2])


def keys(name, query):
    return (MEASURES[name].pattern(SEQUENCE)[0, query] > 0).nonzero()[:, 0].tolist()


def test_where_the_measures_look():
    assert keys("previous_token", 4) == [3]
    assert [keys("induction", query) for query in range(7)] == [[], [], [1], [], [], [1, 3], []]
    assert [keys("after_triggers", query) for query in range(7)] == [[], [1], [1], *[[1, 3]] * 3, [1, 3, 6]]
    assert [keys("after_triggers_elsewhere", query) for query in (2, 3, 5)] == [[], [1, 3], []]


def test_a_trigger_that_is_its_own_output_may_attend_to_itself():
    batch = given(5, 0, 0, 0, 0, triggers=[0, 4], outputs=[0, 2])
    rows = checked_pattern(EXACT_INDUCTION, batch)[0]
    assert rows[2].tolist() == [0, 0, 1, 0]
    assert rows[3].tolist() == [0, 0, 0.5, 0.5]


def test_the_planted_circuit_is_recognised(tmp_path):
    batch = prompts(TASK, 0)
    found = head_attention(constructed.induction(6, 12), batch)
    scores = found.score
    assert scores.sel(measure="previous_token", layer=0, head=0) == pytest.approx(1)
    assert scores.sel(measure="induction", layer=1, head=0) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(scores.sel(head=1), np.broadcast_to(found.even.values[:, None], (4, 2)), rtol=1e-5)
    assert found.n.sel(measure="previous_token") == 64 * 11
    assert found.n.sel(measure="induction") == int((batch.latents["occurrence"] > 1).sum())
    assert reads_back(found, tmp_path / "found.nc")


def test_scores_are_means_over_queries_of_the_attention_on_the_keys():
    model = random_model(d_vocab=6, n_ctx=12, n_layers=2)
    batch = TASK.sample(70, split="test", generator=seeded())  # two chunks
    _, patterns = logits_and_patterns(model, batch)
    mask = MEASURES["after_triggers"].pattern(batch) > 0
    on = (patterns[1] * mask[:, None]).sum(-1).transpose(0, 1)[:, mask.any(-1)].mean(-1)
    found = head_attention(model, batch).score.sel(measure="after_triggers", layer=1)
    np.testing.assert_allclose(found, on, rtol=1e-5)


def test_no_trigger_twice_gives_no_score():
    batch = given(0, 1, 5, 3, triggers=[0, 4], outputs=[1, 2])
    found = head_attention(random_model(d_vocab=6), batch)
    assert math.isnan(found.score.sel(measure="induction", layer=0, head=0))
    assert found.n.sel(measure="induction") == 0


def test_what_the_planted_patterns_are_worth(tmp_path):
    model, batch = constructed.induction(6, 12), prompts(TASK, 0)
    by_layer = pattern_costs(model, batch)
    cost = by_layer.accuracy_cost.sel(position_class="in_context")
    assert cost.sel(component="L0", pattern="previous token") == 0
    assert cost.sel(component="L1", pattern=["induction", "last induction"]).values.tolist() == [0, 0]
    assert (cost.sel(pattern="uniform") > 0.2).all()
    by_head = pattern_costs(model, batch, by="head")
    assert by_head.component.values.tolist() == ["L0H0", "L0H1", "L1H0", "L1H1"]
    assert not by_head.accuracy_cost.sel(component=["L0H1", "L1H1"]).any()
    np.testing.assert_allclose(by_head.loss_cost[::2].values, by_layer.loss_cost.values, atol=1e-6)
    assert by_layer.accuracy.sel(position_class="in_context") == 1
    assert reads_back(by_layer, tmp_path / "found.nc")


def test_a_pattern_replaced_by_itself_costs_nothing():
    model, batch = random_model(d_vocab=6, n_ctx=12, n_layers=2), prompts(TASK, 0)
    _, patterns = logits_and_patterns(model, batch)
    own = Mechanism(name="own", pattern=lambda rows: patterns[1][: len(rows), 1])
    silent = Mechanism(name="silent", pattern=lambda rows: torch.full((len(rows), 12, 12), torch.nan))
    found = pattern_costs(model, batch, by="head", mechanisms={"own": own, "silent": silent})
    assert not found.sel(component="L1H1")[["loss_cost", "accuracy_cost"]].to_array().any()
    assert not found.sel(pattern="silent")[["loss_cost", "accuracy_cost"]].to_array().any()
    assert found.loss_cost.sel(component="L0H0", pattern="own").any()


def test_removing_the_induction_head_costs_the_skill_and_an_idle_head_nothing():
    model, batch = constructed.induction(6, 12), prompts(TASK, 0)
    found = removal_costs(model, batch, reference=prompts(TASK, 1))
    cost = found.accuracy_cost.sel(position_class="in_context")
    assert found.component.values.tolist() == ["L0H0", "L0H1", "L1H0", "L1H1"]
    assert (cost.sel(component=["L0H0", "L1H0"]) > 0.2).all()
    assert not cost.sel(component=["L0H1", "L1H1"]).any()
    with_mlp = removal_costs(random_model(d_vocab=6, n_ctx=12), batch, reference=batch)
    assert with_mlp.component.values.tolist() == ["L0H0", "L0H1", "L0 MLP"]


def test_what_cannot_be_measured_is_refused():
    model = random_model(d_vocab=6, n_ctx=12)
    lookup = PermutationLookup(split_seed=0).sample(2, split="test", generator=seeded())
    with pytest.raises(InputError, match="where triggers stand"):
        head_attention(random_model(d_vocab=12), lookup)
    with pytest.raises(InputError, match="rows that add up to 1"):
        pattern_costs(model, prompts(TASK, 0), mechanisms={"none": fixed("none", torch.zeros(12, 12))})
    with pytest.raises(InputError, match="of one length"):
        removal_costs(model, prompts(TASK, 0), reference=prompts(TASK, 0, length=9))
    with torch.no_grad():
        model.blocks[0].attn.W_Q[0] = torch.inf
    with pytest.raises(InputError, match="attention of layer 0 is NaN"):
        head_attention(model, prompts(TASK, 0))
