"""What is followed of any task: the numbers that training logged, and those of an exact predictor."""

import pytest

from mnemoscope.analyses.comparison import skill_trajectory
from mnemoscope.analyses.stacking import over_steps
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import Predictor, global_generators_untouched, random_model

TASK = PermutationLookup(repeat_ratio=0.5).for_seed(0)
SKILLS = ("elimination", "recall")


def test_checkpoints_have_the_accuracies_and_losses_that_training_logged(tiny):
    task, seed = tiny.spec.task, tiny.spec.seed
    followed = over_steps(tiny, lambda model: skill_trajectory(model, task, seed=seed))
    logged = tiny.metrics().sel(step=list(tiny.steps))
    assert set(followed.data_vars) == {f"{name}_{skill}" for name in ("accuracy", "loss") for skill in SKILLS}
    for skill in SKILLS:
        assert followed[f"accuracy_{skill}"].values == pytest.approx(logged[f"test_{skill}"].values)
        assert followed[f"loss_{skill}"].values == pytest.approx(logged[f"test_loss_{skill}"].values, abs=1e-5)


def test_an_exact_predictor_has_every_skill():
    found = skill_trajectory(Predictor(TASK, "bayes"), TASK, seed=0)
    for skill in SKILLS:
        assert float(found[f"accuracy_{skill}"]) == 1
        assert float(found[f"loss_{skill}"]) == pytest.approx(0, abs=1e-6)


def test_prompts_follow_the_seed_and_nothing_else():
    model = random_model()
    with global_generators_untouched():
        first, again, other = (skill_trajectory(model, TASK, seed=seed) for seed in (1, 1, 2))
    assert first.identical(again)
    assert not first.equals(other)


def test_a_task_without_skills_has_all_positions_as_one(monkeypatch):
    monkeypatch.setattr(PermutationLookup, "skills", lambda task, batch: {})
    found = skill_trajectory(Predictor(TASK, "bayes"), TASK, seed=0)
    assert set(found.data_vars) == {"accuracy_all", "loss_all"}
    assert float(found.accuracy_all) == pytest.approx((1 / 5 + 1 / 4 + 1 / 3 + 1 / 2 + 1) / 5)  # values left, by slot
