import math

import pytest
import torch

from mnemoscope.training.monitors import stack_monitor_batches
from tests.support import Predictor, seeded, small_spec

SCORED = torch.tensor([0, 2, 4, 6, 8])


def line(name: str, preset: str = "v3") -> dict[str, float]:
    task = small_spec(preset).task
    batch = task.monitor(50, split="test", generator=seeded())
    (found,) = stack_monitor_batches([task], [batch], SCORED).lines(
        Predictor(task, name)(batch.inputs)[None, :, SCORED]
    )
    return dict(found)


def test_the_exact_predictor_reaches_its_floor_and_has_every_skill():
    floor = pytest.approx(math.log(120) / 5)
    assert line("bayes") == {
        "loss": floor,
        "loss_fresh": floor,
        "loss_repeat": floor,
        "loss_elimination": 0.0,
        "elimination": 1.0,
        "loss_recall": 0.0,
        "recall": 1.0,
    }


@pytest.mark.parametrize(("preset", "repeats"), [("v1", 0.0), ("v3", 0.3)])
def test_the_loss_is_that_of_the_tasks_mixture(preset, repeats):
    measured = line("recall", preset)
    fresh = math.log(5)  # 1/5 everywhere
    repeat = 4 / 5 * math.log(5)  # and certain in the last slot
    assert measured["loss_fresh"] == pytest.approx(fresh)
    assert measured["loss_repeat"] == pytest.approx(repeat)
    assert measured["loss"] == pytest.approx((1 - repeats) * fresh + repeats * repeat)
    assert measured["recall"] == 1
    assert measured["elimination"] < 0.6


def test_an_impossible_answer_costs_infinitely_and_does_not_stop_training():
    measured = line("elimination")
    assert measured["loss_repeat"] == measured["loss"] == math.inf
    assert (measured["elimination"], measured["recall"]) == (1, 0)
