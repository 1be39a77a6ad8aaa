import numpy as np
import pytest
import torch

from mnemoscope.analyses.attention_scores import SCORES, head_scores, repeated_tokens
from mnemoscope.analyses.attention_shares import attention_by_mechanism
from mnemoscope.core.errors import InputError
from mnemoscope.core.patterns import Mechanism, earlier_same, fixed_key, identity, previous, uniform
from mnemoscope.models.constructed import induction
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from tests.support import (
    EARLIER_X,
    EARLIER_Y,
    foreign_model,
    global_generators_untouched,
    random_model,
    seeded,
    small_spec,
)


def test_the_heads_of_the_induction_circuit_score_one():
    model = induction(12, 12)
    score = head_scores(model, repeated_tokens(model)).score
    assert score.sel(score_name="previous token", layer=0, head=0).item() == pytest.approx(1)
    assert score.sel(score_name="induction", layer=1, head=0).item() == pytest.approx(1)
    assert score.sel(score_name="induction", layer=0, head=0).item() < 1e-6
    assert score.sel(score_name="duplicate token", head=0).max().item() < 1e-6


def test_an_idle_head_scores_what_even_attention_does():
    model = induction(12, 12)
    result = head_scores(model, repeated_tokens(model)).sel(head=1)
    np.testing.assert_allclose(result.score, result.even.expand_dims(layer=2).T, rtol=1e-5)
    assert result.even.sel(score_name="self").item() == pytest.approx(sum(1 / n for n in range(2, 13)) / 11)


def test_untrained_heads_score_about_what_even_attention_does():
    model = foreign_model(n_ctx=40)
    for block in model.blocks:
        block.attn.W_Q.data *= 0.1
    result = head_scores(model, repeated_tokens(model))
    assert float(abs(result.score - result.even).max()) < 0.1


def test_a_score_without_such_keys_is_missing():
    model = random_model(d_vocab=20)
    batch = repeated_tokens(model)
    half = type(batch)(inputs=batch.inputs[:, :4], targets=batch.targets[:, :4], scored=batch.scored[:, :4])
    result = head_scores(model, half)
    assert result.score.sel(score_name=["duplicate token", "induction"]).isnull().all()
    assert result.score.sel(score_name="previous token").notnull().all()
    assert result.score_name.values.tolist() == list(SCORES)


def test_repeated_tokens_repeat_and_nothing_else_does():
    model = foreign_model()
    with global_generators_untouched():
        batch = repeated_tokens(model, n=5, length=6, first_token=7)
    first, one, again = batch.inputs[:, :1], batch.inputs[:, 1:7], batch.inputs[:, 7:]
    assert (first == 7).all()
    assert torch.equal(one, again)
    assert (one.sort(1)[0].diff(dim=1) > 0).all()
    assert not (one == 7).any()
    places = torch.arange(13).expand(5, -1)[batch.scored].view(5, -1)
    assert places.tolist() == [list(range(7, 12))] * 5
    assert torch.equal(batch.targets[batch.scored].view(5, -1), again[:, 1:])


def test_length_and_tokens_are_what_the_model_has():
    assert repeated_tokens(foreign_model()).inputs.shape == (64, 20)
    assert set(repeated_tokens(foreign_model(), tokens=range(3, 8)).inputs.unique().tolist()) == set(range(3, 8))
    with pytest.raises(InputError, match="length must be from 2 to 10"):
        repeated_tokens(foreign_model(), length=11)
    with pytest.raises(InputError, match="tokens must be from 0 to 49"):
        repeated_tokens(foreign_model(), tokens=[50, 1])


TASK = small_spec("v3").task
BATCH = TASK.monitor(30, split="test", generator=seeded())
MECHANISMS = (identity(), previous(), EARLIER_Y, EARLIER_X, earlier_same(period=2))


def shares(model=None, mechanisms=MECHANISMS, **options):
    return attention_by_mechanism(model or random_model(n_layers=2), BATCH, mechanisms, **options)


def test_exclusive_shares_add_up_to_one():
    result = shares(subgroups=TASK.subgroups(BATCH))
    np.testing.assert_allclose(result.exclusive.sum("part"), 1, rtol=1e-5)
    assert result.part.values.tolist()[-1] == "other"


def test_a_key_counts_for_the_first_mechanism_that_attends_to_it():
    result = shares(elimination_only()).sel(layer=0, head=1).isel(subgroup=0, query=4)  # even over five keys
    expected = {"identity": 1, "previous token": 1, "earlier y": 1, "earlier x": 2, "other": 0}
    for name, n_keys in expected.items():
        assert result.exclusive.sel(part=name).item() == pytest.approx(n_keys / 5)
    assert result.share.sel(mechanism="earlier y").item() == pytest.approx(2 / 5), "shares overlap"


def test_uniform_attention_gives_what_is_expected_of_it():
    result = shares(elimination_only()).sel(head=1).isel(layer=0)
    given, expected = (result[name].transpose("subgroup", "query", "mechanism") for name in ("share", "even_share"))
    np.testing.assert_allclose(given, expected, rtol=1e-5)
    assert expected.sel(mechanism="earlier y").isel(subgroup=0, query=8).item() == pytest.approx(4 / 9)


def test_nothing_is_said_of_queries_without_such_keys():
    result = shares(subgroups=TASK.subgroups(BATCH)).sel(mechanism="same token at same place")
    assert result.share.isel(query=slice(None, 8)).isnull().all()
    assert result.share.isel(query=8).sel(subgroup="fresh").isnull().all()
    assert result.share.isel(query=8).sel(subgroup="repeat").notnull().all()
    assert result.said.isel(query=8).values.tolist() == [0, 1]


def test_a_mean_over_the_sequences_about_which_something_is_said():
    both = shares().sel(mechanism="same token at same place").isel(query=8, subgroup=0)
    apart = shares(subgroups=TASK.subgroups(BATCH)).sel(mechanism="same token at same place", subgroup="repeat")
    np.testing.assert_allclose(both.share, apart.share.isel(query=8))
    assert both.said.item() == 0.5


def test_the_overlap_is_one_only_for_the_mechanism_itself():
    result = shares(elimination_only(), (EARLIER_Y, uniform(), fixed_key(1))).isel(subgroup=0, layer=0, query=8)
    overlap, share = result.overlap, result.share
    assert overlap.sel(head=0, mechanism="earlier y").item() == pytest.approx(1)
    assert overlap.sel(head=0, mechanism="uniform").item() == pytest.approx(4 / 9)
    assert share.sel(head=0, mechanism="uniform").item() == pytest.approx(1)
    assert share.sel(head=0, mechanism="position 1").item() == pytest.approx(1 / 4)
    assert overlap.sel(head=0, mechanism="position 1").item() == pytest.approx(1 / 4), "one key: the share"


def test_the_mean_pattern_is_that_of_the_subgroup():
    model = random_model(n_layers=2)
    _, cache = model.run_with_cache(BATCH.inputs)
    repeats = BATCH.latents["is_repeat"]
    found = shares(model, subgroups=TASK.subgroups(BATCH)).mean_pattern.sel(subgroup="repeat", layer=1)
    np.testing.assert_allclose(found, cache["pattern", 1][repeats].double().mean(0), rtol=1e-5)


def test_dependence_on_the_slot_by_hand():
    # the elimination head gives all to earlier y from every x but the first; from y_k, (k - 1) of k
    result = shares(elimination_only(), period=2).isel(subgroup=0, layer=0).sel(head=0, mechanism="earlier y")
    assert result.slot_range.sel(place=0).item() == pytest.approx(0, abs=1e-6)
    assert result.slot_range.sel(place=1).item() == pytest.approx(3 / 4 - 1 / 2)
    assert result.slot_sd.sel(place=1).item() == pytest.approx(np.std([1 / 2, 2 / 3, 3 / 4]))
    alone = shares(elimination_only(), period=2).isel(subgroup=0, layer=0).sel(head=0, mechanism="identity", place=0)
    assert alone.slot_range.item() == pytest.approx(0, abs=1e-6), "the first query has no choice and does not count"
    assert result.slot.values.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5]


def test_one_slot_has_no_range():
    found = shares(subgroups=TASK.subgroups(BATCH), period=2).sel(mechanism="same token at same place")
    assert found.slot_range.sel(subgroup="repeat").isnull().all()


def test_only_what_is_asked_for_is_measured():
    whole, some = shares(period=2), shares(period=2, measures=["mean_pattern"])
    assert set(some.data_vars) == {"mean_pattern", "even_share", "said"}
    assert some.mean_pattern.identical(whole.mean_pattern)
    with pytest.raises(InputError, match="a measure of attention must be one of: share, overlap"):
        shares(measures=["mean"])


def test_any_model():
    result = attention_by_mechanism(foreign_model(n_layers=3), BATCH, [previous()])
    assert dict(result.share.sizes) == {"subgroup": 1, "layer": 3, "head": 2, "query": 9, "mechanism": 1}
    assert result.attrs["n"] == 60


def test_wrong_input_is_refused():
    with pytest.raises(InputError, match="twice"):
        shares(mechanisms=(identity(), identity()))
    with pytest.raises(InputError, match="'other'"):
        shares(mechanisms=(Mechanism(name="other", pattern=identity().pattern),))
    with pytest.raises(InputError, match="subgroup none has no sequence"):
        shares(subgroups={"none": torch.zeros(60, dtype=torch.bool)})
    with pytest.raises(InputError, match="period must be from 1 to 9"):
        shares(period=10)
    broken = random_model()
    broken.blocks[0].attn.W_Q.data[0, 0, 0] = torch.nan
    with pytest.raises(InputError, match="W_Q holds NaN"):
        shares(broken)
