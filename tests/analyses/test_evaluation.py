import math
from itertools import permutations

import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses.evaluation import evaluate, evaluate_splits
from mnemoscope.analyses.forward import log_probs
from mnemoscope.core.errors import InputError
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests import plain
from tests.support import Predictor, foreign_model, random_model, seeded, small_spec

V3 = small_spec("v3").task


def lookup(n_values: int, **fields) -> PermutationLookup:
    return PermutationLookup(**{"n_values": n_values, "split_seed": 0, **fields})


@pytest.mark.parametrize("split", ["train", "test", "all"])
@pytest.mark.parametrize("task", [lookup(3), lookup(4), lookup(4, repeat_ratio=0.3)], ids=str)
def test_the_exact_predictor_has_no_error_and_its_loss_is_the_floor(task, split):
    result = evaluate(Predictor(task, "bayes"), task, task.enumerate(split=split)).sel(reference="bayes")
    for name in ("kl", "mean_abs_error", "max_abs_error"):
        np.testing.assert_allclose(result[name], 0, atol=1e-12)
    np.testing.assert_allclose(result.loss, result.floor, atol=1e-12)
    floors = [math.log(n) for n in range(task.n_values, 0, -1)]
    for group in result.subgroup.values:
        np.testing.assert_allclose(result.loss.sel(subgroup=group), floors, atol=1e-12)
    np.testing.assert_allclose(result.best_accuracy.sel(subgroup="all"), [math.exp(-f) for f in floors])


@pytest.mark.parametrize("reference", ["bayes_train", "elimination", "recall"])
def test_every_reference_is_measured_against_itself(reference):
    task = lookup(4, repeat_ratio=0.3)
    result = evaluate(Predictor(task, reference), task, task.enumerate(split="train")).sel(reference=reference)
    for name in ("kl", "mean_abs_error", "max_abs_error"):
        np.testing.assert_allclose(result[name], 0, atol=1e-12)
    np.testing.assert_allclose(result.loss, result.floor, atol=1e-12)


def test_a_uniform_model_by_hand():
    task = lookup(4)
    result = evaluate(Predictor(task), task, task.enumerate(split="all"))
    np.testing.assert_allclose(result.loss, math.log(4))
    np.testing.assert_allclose(result.accuracy.sel(subgroup=["all", "fresh"]), 1 / 4, atol=1e-6)  # 1 is the first token
    bayes = result.sel(reference="bayes", subgroup="fresh")  # uniform over 4, 3, 2, 1 values, slot by slot
    np.testing.assert_allclose(bayes.kl, [0, math.log(4 / 3), math.log(2), math.log(4)], atol=1e-9)
    np.testing.assert_allclose(bayes.mean_abs_error, [0, (3 / 12 + 1 / 4) / 4, 1 / 4, (3 / 4 + 3 / 4) / 4], atol=1e-9)
    np.testing.assert_allclose(bayes.max_abs_error, [0, 1 / 4, 1 / 4, 3 / 4], atol=1e-9)


def test_the_best_guess_of_a_wrong_predictor_is_wrong():
    task = lookup(4, repeat_ratio=0.5)
    best = evaluate(Predictor(task), task, task.enumerate(split="all")).best_accuracy.isel(pos=-1)
    expected = {  # on fresh sequences elimination is right and recall guesses; on repeats recall is right
        ("elimination", "fresh"): 1,
        ("elimination", "repeat"): 0,
        ("elimination", "all"): 0.5,
        ("recall", "fresh"): 0.25,
        ("recall", "repeat"): 1,
        ("bayes", "all"): 1,
    }
    for (reference, subgroup), value in expected.items():
        assert float(best.sel(reference=reference, subgroup=subgroup)) == pytest.approx(value, abs=1e-6)


def test_infinite_and_undefined_floors_are_reported_as_such():
    task = lookup(4, repeat_ratio=0.3)
    result = evaluate_splits(Predictor(task), task)
    last = result.floor.isel(pos=-1)
    assert last.sel(split="test", reference="elimination", subgroup="all") == math.inf
    assert last.sel(split="test", reference="elimination", subgroup="fresh") == 0
    assert last.sel(reference="bayes_train").sel(split="test").isnull().all()
    assert last.sel(reference="bayes_train").sel(split="train").notnull().all()
    assert result.kl.sel(reference="bayes_train", split="test").isel(pos=-1).isnull().all()


def test_where_a_reference_is_undefined_it_is_left_out_and_the_rest_is_counted():
    task = lookup(4, repeat_ratio=0.3)
    batch = task.enumerate(split="test")
    result = evaluate(Predictor(task), task, batch).sel(subgroup="all", reference="bayes_train")
    prior = task.mappings("train").tolist()
    for slot in range(4):
        weighed = [
            (weight, plain.posterior(xs, ys, slot, prior, 4))
            for (xs, ys), weight in zip(plain.rows(batch), batch.weights.tolist(), strict=True)
        ]
        known = [(weight, [float(p) for p in posterior]) for weight, posterior in weighed if posterior]
        total = sum(weight for weight, _ in known)
        assert float(result.defined[slot]) == pytest.approx(total, abs=1e-5)
        errors = [(weight, [abs(p - 1 / 4) for p in posterior[1:]]) for weight, posterior in known]
        mean = sum(weight * sum(error) / 4 for weight, error in errors) / total if known else math.nan
        largest = max((max(error) for _, error in errors), default=math.nan)
        assert float(result.mean_abs_error[slot]) == pytest.approx(mean, abs=1e-6, nan_ok=True)
        assert float(result.max_abs_error[slot]) == pytest.approx(largest, nan_ok=True)
    assert result.defined.values[[0, -1]].tolist() == pytest.approx([1, 0])


def test_weights_count_in_the_mixture_and_not_in_a_group_that_weighs_nothing():
    model, task = random_model(d_vocab=5, n_ctx=7), lookup(4, repeat_ratio=0.3)
    with_weights = evaluate(model, task, task.enumerate(split="test"))
    mixture = 0.7 * with_weights.sel(subgroup="fresh") + 0.3 * with_weights.sel(subgroup="repeat")
    for name in ("loss", "accuracy", "kl"):
        np.testing.assert_allclose(with_weights[name].sel(subgroup="all"), mixture[name], atol=1e-6)
    no_repeats = lookup(4)
    result = evaluate(model, no_repeats, no_repeats.enumerate(split="test"))
    np.testing.assert_allclose(result.loss.sel(subgroup="all"), result.loss.sel(subgroup="fresh"), atol=1e-9)
    np.testing.assert_allclose(result.loss.sel(subgroup="repeat"), with_weights.loss.sel(subgroup="repeat"), atol=1e-6)
    assert dict(zip(result.subgroup.values, result.n.values, strict=True)) == {
        "all": 5 * 24 * 4,  # test mappings, orders, fresh or a repeat of one of three slots
        "fresh": 5 * 24,
        "repeat": 5 * 24 * 3,
    }


def test_a_group_without_sequences_is_undefined():
    task = small_spec("v1").task
    result = evaluate(random_model(), task, task.sample(20, split="test", generator=seeded()))
    assert result.sel(subgroup="repeat")[["loss", "kl", "max_abs_error"]].to_array().isnull().all()
    assert result.sel(subgroup="fresh").loss.notnull().all()


def test_samples_and_enumeration_agree():
    model, task, n = random_model(d_vocab=5, n_ctx=7), lookup(4, repeat_ratio=0.3), 10_000
    exact, sampled = evaluate_splits(model, task), evaluate_splits(model, task, n_samples=n)
    assert exact.attrs["sequences"] == "enumerated"
    assert sampled.attrs["sequences"] == "10000 samples"
    for name, spread in (("loss", 1.0), ("accuracy", 0.5)):
        difference = abs(exact[name] - sampled[name]).sel(subgroup="all")
        assert difference.max() < 5 * spread / n**0.5, name
        assert difference.max() > 0, name


def test_chunks_make_no_difference(monkeypatch):
    model, batch = random_model(), V3.sample(100, split="test", generator=seeded())
    whole = evaluate(model, V3, batch)
    monkeypatch.setattr("mnemoscope.analyses.evaluation.CHUNK", 7)
    monkeypatch.setattr("mnemoscope.engine.budget.MAX_BYTES", 30_000)
    xr.testing.assert_allclose(evaluate(model, V3, batch), whole)


def excess(model, task, split: str, reference: str) -> float:
    """Mean loss beyond that of a reference, over the whole distribution of `split`."""
    batch = task.enumerate(split=split)
    batch = batch.select(batch.weights > 0)
    ours, floor = log_probs(model, task, batch), task.reference(batch, reference).log()
    beyond = (floor - ours).gather(-1, batch.targets[..., None])[:, ::2, 0].mean(1)
    return float((batch.weights.double() * beyond).sum())


@pytest.mark.parametrize(("split", "reference"), [("all", "bayes"), ("train", "bayes_train"), ("test", "bayes_test")])
@pytest.mark.full
def test_no_model_beats_the_floor_of_its_distribution(learned, tiny, split, reference):
    for run in (learned, tiny):
        for model in (run.model(), run.untrained()):
            assert excess(model, learned.spec.task, split, reference) > 0
    assert excess(learned.model(), learned.spec.task, "all", "bayes") < 0.05


@pytest.mark.full
def test_a_trained_model_is_near_the_exact_predictor(learned):
    result = evaluate_splits(learned.model(), learned.spec.task, splits=("test",)).sel(subgroup="all", split="test")
    assert result.accuracy.isel(pos=-1) > 0.99
    assert 0 < result.kl.sel(reference="bayes").mean() < 0.1
    assert result.kl.sel(reference="recall").mean() > 0.3


def test_a_model_that_is_too_small_is_refused():
    batch = V3.sample(3, split="test", generator=seeded())
    with pytest.raises(InputError, match="the model has 5 tokens and the task 6; take a model with more"):
        evaluate(random_model(d_vocab=5), V3, batch)
    with pytest.raises(InputError, match="the model reads 7 tokens and the batch has 9; take a model with more"):
        evaluate(random_model(n_ctx=7), V3, batch)


def test_a_larger_vocabulary_shares_in_the_normalisation():
    model, batch = foreign_model(), V3.sample(50, split="test", generator=seeded())
    expected = model(batch.inputs).double().log_softmax(-1)
    given = log_probs(model, V3, batch)
    assert torch.allclose(given, expected[..., :6], atol=1e-5)
    assert given.exp().sum(-1).max() < 0.9
    loss = -expected.gather(-1, batch.targets[..., None])[:, ::2, 0].mean(0)
    result = evaluate(model, V3, batch)
    np.testing.assert_allclose(result.loss.sel(subgroup="all"), loss.detach().numpy())
    assert result.pos.values.tolist() == [0, 2, 4, 6, 8]


def test_a_pretrained_model_can_be_evaluated(pretrained):
    from transformers import GPT2LMHeadModel

    batch = V3.sample(50, split="test", generator=seeded())
    result = evaluate(pretrained, V3, batch).sel(subgroup="all")
    original = GPT2LMHeadModel.from_pretrained("gpt2").eval()  # the local one
    expected = original(batch.inputs).logits.log_softmax(-1).gather(-1, batch.targets[..., None])[:, ::2, 0]
    np.testing.assert_allclose(result.loss, -expected.mean(0).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("make", [lambda: random_model(d_vocab=5, n_ctx=7), foreign_model])
def test_the_loss_beyond_the_floor_is_the_divergence_from_the_exact_predictor(make):
    task = lookup(4, repeat_ratio=0.3)
    result = evaluate(make(), task, task.enumerate(split="all")).sel(subgroup="all", reference="bayes")
    np.testing.assert_allclose(result.loss - result.floor, result.kl, atol=1e-6)
    assert (result.kl > 0.01).all()


@pytest.mark.slow
def test_v3_learns_both_skills(learned_v3):
    result = evaluate_splits(learned_v3.model(), learned_v3.spec.task).sel(split="test").isel(pos=-1)
    assert result.accuracy.sel(subgroup="fresh") > 0.99
    assert result.accuracy.sel(subgroup="repeat") > 0.9  # elimination alone: 0; rounding decides how far a seed gets


def test_an_undefined_reference_is_compared_where_it_is_defined():
    """On test mappings, slot by slot: the share of sequences with a consistent training mapping, counted plainly."""
    task = PermutationLookup(n_values=4, split_seed=0)
    result = evaluate(Predictor(task, "bayes"), task, task.enumerate(split="test"))
    train = [dict(enumerate(row, 1)) for row in task.mappings("train").tolist()]
    shares = []
    for slot in range(4):
        found = [
            any(all(other[x] == mapping[x] for x in order[:slot]) for other in train)
            for mapping in (dict(enumerate(row, 1)) for row in task.mappings("test").tolist())
            for order in permutations(range(1, 5))
        ]
        shares.append(sum(found) / len(found))
    defined = result.defined.sel(reference="bayes_train", subgroup="fresh")
    assert 0 < shares[2] < 1
    np.testing.assert_allclose(defined, shares)
    assert np.isfinite(result.kl.sel(reference="bayes_train", subgroup="fresh")[2])
    assert np.isnan(result.kl.sel(reference="bayes_train", subgroup="fresh")[3])


def test_a_model_that_says_nothing_is_refused(tiny):
    model = tiny.model()
    with torch.no_grad():
        model.unembed.b_U[0] = torch.nan
    with pytest.raises(InputError, match="NaN"):
        evaluate_splits(model, tiny.spec.task)


def test_weights_that_hold_nan_are_refused_even_where_the_logits_do_not_tell():
    model, task = random_model(), small_spec("v3").task
    batch = task.sample(5, split="test", generator=seeded())
    with torch.no_grad():
        model.blocks[0].attn.W_Q[0, 0, 0] = torch.nan
    assert not model(batch.inputs).isnan().any()
    with pytest.raises(InputError, match=r"the model's weight blocks.0.attn.W_Q holds NaN; take an earlier checkpoint"):
        evaluate(model, task, batch)
