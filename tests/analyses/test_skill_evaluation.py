"""Evaluation by skill: an exact predictor meets its own floor, and skills are what the task says."""

import math

import numpy as np
import pytest
import torch

from mnemoscope.analyses.evaluation import evaluate, evaluate_splits
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import Predictor, global_generators_untouched, random_model, reads_back, seeded

TASK = PermutationLookup(repeat_ratio=0.5).for_seed(0)


def test_an_exact_predictor_is_at_its_own_floor():
    batch = TASK.sample(200, split="test", generator=seeded())
    result = evaluate(Predictor(TASK, "bayes"), TASK, batch, by="skill")
    own = result.sel(reference="bayes")
    np.testing.assert_allclose(result.loss, own.floor, atol=1e-6)
    np.testing.assert_allclose(own.kl, 0, atol=1e-6)
    np.testing.assert_allclose(result.accuracy, own.best_accuracy)
    assert result.skill.values.tolist() == ["all", *TASK.skills(batch)]
    assert float(result.accuracy.sel(skill="recall")) == 1


def test_a_model_that_knows_nothing_guesses():
    batch = TASK.sample(200, split="test", generator=seeded())
    model = random_model()
    with torch.no_grad():
        model.W_U.zero_()
        model.b_U.zero_()
    result = evaluate(model, TASK, batch, by="skill")
    np.testing.assert_allclose(result.loss, math.log(model.cfg.d_vocab), rtol=1e-6)
    np.testing.assert_allclose(result.accuracy, 1 / TASK.d_vocab)  # in expectation over ties


def test_all_positions_together_are_those_of_the_evaluation_by_position():
    batch, model = TASK.sample(300, split="train", generator=seeded()), random_model()
    every = evaluate(model, TASK, batch, by="skill").sel(skill="all")
    by_position = evaluate(model, TASK, batch).sel(subgroup="all").mean("pos")
    assert float(every.loss) == pytest.approx(float(by_position.loss))
    assert int(every.n) == int(batch.scored.sum())


def test_splits_follow_the_seed_and_nothing_else(tmp_path):
    model = random_model()
    with global_generators_untouched():
        first, again, other = (evaluate_splits(model, TASK, by="skill", n_samples=40, seed=seed) for seed in (1, 1, 2))
    assert first.identical(again)
    assert not first.loss.equals(other.loss)
    assert first.split.values.tolist() == ["train", "test"]
    assert reads_back(first, tmp_path / "result.nc")
