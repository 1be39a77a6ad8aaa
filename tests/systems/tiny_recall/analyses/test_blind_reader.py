"""The exact reader that sees which tokens stood there, and not in which order."""

import math

import pytest
import torch

from mnemoscope.systems.tiny_recall.analyses.predictions import blind_reader
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

TASK = PermutationLookup(repeat_ratio=0.3, split_seed=0)


def answers(text, task=TASK):
    return blind_reader(task, task.parse(text))[0]


def test_order_does_not_matter():
    torch.testing.assert_close(answers("1 2 2 3 3 1 4 4 5 5"), answers("3 4 4 1 2 2 1 3 5 5"))


def test_an_x_that_stands_there_not_at_all_is_its_own_image():
    assert answers("1 2 2 3 3 1 4 4 5 5").tolist() == [0, 0, 0, 0, 0, 1]


def test_a_token_that_stands_there_once_is_an_x_with_the_other_as_its_y_or_a_repeat():
    """4 and 5 stand there once. x5 = 5 is new, with y = 4; or it repeats, and x = 4 and y = 5 are missing.

    Either has 24 mappings and 24 orders of the earlier x. An order without a repeat weighs .7 / 120, one in which the
    slot of 5 is repeated .3 / 480; there y is 1, 2, 3 or 4 equally often.
    """
    found = answers("1 2 2 3 3 1 4 5 5 4")
    new, repeated = 0.7 / 120, 0.3 / 480
    assert found[4] == pytest.approx((new + repeated / 4) / (new + repeated))
    assert found[[1, 2, 3]].tolist() == pytest.approx([repeated / 4 / (new + repeated)] * 3)
    assert found.sum() == pytest.approx(1)


def test_without_repeats_it_eliminates_and_knows_it():
    task = PermutationLookup(split_seed=0)
    batch = task.enumerate(split="test")
    batch = batch.select(~batch.latents["is_repeat"])
    right = blind_reader(task, batch).gather(1, batch.targets[:, -1:])
    torch.testing.assert_close(right, torch.ones_like(right))


def test_what_it_costs():
    batch = TASK.enumerate(split="all")
    found = blind_reader(TASK, batch)
    right = found.gather(1, batch.targets[:, -1:])[:, 0]
    loss = -(batch.weights.double() * right.log()).sum()
    assert float(loss) == pytest.approx(0.575, abs=1e-3)
    entropy = -(batch.weights.double()[:, None] * found * found.clamp(min=1e-300).log()).sum()
    assert float(loss) == pytest.approx(float(entropy), rel=1e-4)  # calibrated
    assert float(loss) < math.log(5)
