import math
from dataclasses import replace

import pytest
import torch

from mnemoscope.analyses.attention_replacement.losses import LossRise, loss_rise, mean_scores, score, skill_loss
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.skills import random_halves


def batch(n: int = 4) -> Batch:
    tokens = torch.zeros(n, 2, dtype=torch.long)
    return Batch(inputs=tokens, targets=tokens, scored=torch.ones(n, 2, dtype=torch.bool))


def logits(of: Batch, probabilities: list[list[float]]) -> torch.Tensor:
    """Two tokens; token 0, the target, has the given probability at each position."""
    p = torch.tensor(probabilities, dtype=torch.double)
    return torch.stack((p, 1 - p), -1).log()


def first_only(of: Batch) -> torch.Tensor:
    mask = torch.zeros_like(of.scored)
    mask[:, 0] = True
    return mask


def test_means_by_hand():
    by = skill_loss(of := batch(2), {"first": first_only(of)})
    result = mean_scores(score(logits(of, [[0.5, 0.25], [0.125, 1.0]]), by), by)
    ln2 = math.log(2)
    torch.testing.assert_close(result["loss"], torch.tensor([6 * ln2 / 4, 4 * ln2 / 2], dtype=torch.double))
    torch.testing.assert_close(result["accuracy"], torch.tensor([0.5, 0.5], dtype=torch.double))
    assert by.names == ["all", "first"]


def test_weights_count_for_all_and_not_within_a_skill():
    of = replace(batch(2), weights=torch.tensor([1.0, 0.0]))
    by = skill_loss(of, {"first": first_only(of)})
    loss = mean_scores(score(logits(of, [[0.5, 0.5], [0.25, 0.25]]), by), by)["loss"]
    torch.testing.assert_close(loss, torch.tensor([1, 1.5], dtype=torch.double) * math.log(2))


def test_the_rise_and_its_error_by_hand():
    by = skill_loss(of := batch(4))
    before = score(logits(of, [[0.5, 0.5]] * 4), by)
    after = score(logits(of, [[0.25, 0.25], [0.25, 0.25], [0.5, 0.5], [0.5, 0.5]]), by)
    change = loss_rise(after, before, by)
    ln2 = math.log(2)
    assert change.mean.item() == pytest.approx(ln2 / 2)
    assert change.error.item() == pytest.approx(ln2 / 4)  # deviations of ln2 / 2, four of them


@pytest.mark.parametrize(
    ("mean", "error", "costs", "holds", "surely"),
    [
        (0.2, 0.01, True, False, False),
        (0.2, 0.1, False, False, False),  # noise
        (0.04, 0.001, False, True, True),
        (0.04, 0.01, False, True, False),
        (-3.0, 0.1, False, True, True),
        (math.inf, math.nan, True, False, False),
    ],
)
def test_what_costs_and_what_holds(mean, error, costs, holds, surely):
    change = LossRise(mean=torch.tensor([0.0, mean]), error=torch.tensor([0.0, error]))
    assert change.costs(0.05) == costs
    assert change.holds(0.05) == holds
    assert change.holds(0.05, surely=True) == surely


def test_halves_are_every_other_sequence_with_its_skills():
    of = replace(batch(4), inputs=torch.arange(8).view(4, 2))
    mask = torch.tensor([[True, False], [False, True], [True, False], [False, True]])
    one, other = random_halves(of, {"mine": mask})
    assert one[0].inputs[:, 0].tolist() == [0, 4]
    assert one[1]["mine"].tolist() == [[True, False]] * 2
    assert other[1]["mine"].tolist() == [[False, True]] * 2


def test_wrong_skills_are_refused():
    of = batch()
    with pytest.raises(InputError, match="rename it"):
        skill_loss(of, {"all": of.scored})
    with pytest.raises(InputError, match="tested at no position"):
        skill_loss(of, {"none": ~of.scored})
    with pytest.raises(InputError, match=r"shape \(batch, pos\) of the batch, \(4, 2\); got \(4, 3\)"):
        skill_loss(of, {"long": torch.ones(4, 3, dtype=torch.bool)})


def test_nan_is_refused():
    by = skill_loss(of := batch(1))
    with pytest.raises(InputError, match="NaN"):
        score(logits(of, [[math.nan, 0.5]]), by)
