"""Two models asked the same: identities of a model with itself, exact predictors, and labels of one side only."""

import pytest
import torch
import xarray as xr

from mnemoscope.analyses.comparison import compare_predictions, paired_difference, skill_scores
from mnemoscope.core.errors import InputError
from mnemoscope.systems.retrieval.constructed import chain_follower
from mnemoscope.systems.retrieval.tasks import Retrieval
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import Predictor, random_model, seeded

TASK = PermutationLookup(repeat_ratio=0.5).for_seed(0)


@pytest.fixture(scope="module")
def batch():
    return TASK.monitor(40, split="test", generator=seeded())


def test_a_model_agrees_with_itself(batch):
    model = random_model()
    found = compare_predictions(model, model, TASK, batch)
    assert (found.same_guess == 1).all()
    assert (found.share.sel(outcome=["first only", "second only"]) == 0).all()
    assert (
        found.p_answer.sel(model="first").equals(found.p_answer.sel(model="second").drop_vars("model"))
        or (found.p_answer.diff("model").fillna(0) == 0).all()
    )


def test_who_is_right_is_known_of_exact_predictors(batch):
    """The Bayes predictor answers both skills; who only recalls answers recall, and the other by chance."""
    found = compare_predictions(Predictor(TASK, "bayes"), Predictor(TASK, "recall"), TASK, batch)
    assert found.share.sel(skill="recall", outcome="both") == 1
    elimination = found.share.sel(skill="elimination")
    assert elimination.sel(outcome=["both", "first only"]).sum() == pytest.approx(1)
    assert elimination.sel(outcome="first only") > 0.5
    assert (found.share.sum("outcome") == 1).all()
    swapped = compare_predictions(Predictor(TASK, "recall"), Predictor(TASK, "bayes"), TASK, batch)
    assert swapped.share.sel(outcome="second only").equals(
        found.share.sel(outcome="first only").assign_coords(outcome="second only")
    )


def test_probabilities_are_those_of_a_forward_pass(batch):
    model = random_model()
    found = compare_predictions(model, random_model(seed=1), TASK, batch).sel(model="first")
    p = model(batch.inputs).softmax(-1)[:, -1]
    expected = p.gather(1, batch.targets[:, -1:])[:, 0]
    torch.testing.assert_close(torch.tensor(found.p_answer.values[:, -1]), expected.double(), rtol=1e-5, atol=1e-6)
    assert found.guess.values[:, -1].tolist() == p.argmax(-1).tolist()
    assert found.p_answer.isel(pos=0).isnull().all()  # no skill is tested there


def test_scores_of_an_exact_predictor(batch):
    found = skill_scores(Predictor(TASK, "bayes"), TASK, batch)
    assert found.skill.values.tolist() == ["elimination", "recall"]
    assert (found.accuracy == 1).all()
    assert abs(found.loss).max() < 1e-6


def test_of_vectors_the_errors_of_the_parts():
    task = Retrieval(n_chains=2, n_steps=1).for_seed(0)
    model = chain_follower(1, n_chains=2, positions=True)
    found = skill_scores(model, task, task.monitor(16, split="test", generator=seeded()))
    assert found.skill.values.tolist() == ["all", "x1"]
    assert list(found.data_vars) == ["loss"]
    assert (found.loss < 0.05).all()


def test_a_model_that_is_too_small_is_refused(batch):
    with pytest.raises(InputError, match="tokens"):
        compare_predictions(random_model(), random_model(d_vocab=5), TASK, batch)


def test_labels_of_one_side_only_have_no_difference():
    def values(roles, seeds):
        data = [[10.0 * i + seed for i, _ in enumerate(roles)] for seed in seeds]
        coords = {"seed": seeds, "role": roles, "component": (("seed", "role"), data)}
        return xr.DataArray(data, dims=("seed", "role"), coords=coords)

    found = paired_difference(values(["a", "b"], [0, 1, 2]), values(["b", "c"], [0, 1, 2]))
    assert found.role.values.tolist() == ["a", "b", "c"]
    assert found.sel(role="b").values.tolist() == [-10, -10, -10]
    assert found.sel(role=["a", "c"]).isnull().all()
