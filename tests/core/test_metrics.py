import math

import pytest
import torch

from mnemoscope.core import metrics

LOGITS = torch.tensor([[0.0, math.log(3), -math.inf], [1.0, 1.0, 0.0]], dtype=torch.double)  # p = 1/4 3/4 0, ...
TARGETS = torch.tensor([0, 1])


def test_cross_entropy_by_hand():
    expected = [math.log(4), math.log(2 + math.exp(-1))]
    assert metrics.cross_entropy(LOGITS, TARGETS).tolist() == pytest.approx(expected)
    assert metrics.cross_entropy(LOGITS[:1], torch.tensor([2])).item() == math.inf


def test_the_lowest_of_equal_tokens_is_the_top_answer():
    assert metrics.is_correct(LOGITS, torch.tensor([1, 0])).tolist() == [True, True]
    assert metrics.is_correct(LOGITS, torch.tensor([0, 1])).tolist() == [False, False]


def test_a_constant_on_the_logits_changes_nothing():
    shifted = LOGITS + torch.tensor([[7.0], [-3.0]])
    assert metrics.cross_entropy(shifted, TARGETS).tolist() == pytest.approx(
        metrics.cross_entropy(LOGITS, TARGETS).tolist()
    )
    assert torch.equal(metrics.is_correct(shifted, TARGETS), metrics.is_correct(LOGITS, TARGETS))


@pytest.mark.parametrize(
    ("reference", "probabilities", "expected"),
    [
        ([0.5, 0.5, 0.0], [0.25, 0.75, 0.0], 0.5 * math.log(2) + 0.5 * math.log(2 / 3)),
        ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5], 0.0),
        ([0.5, 0.5, 0.0], [1.0, 0.0, 0.0], math.inf),
        ([1.0, 0.0, 0.0], [0.5, 0.0, 0.5], math.log(2)),
    ],
)
def test_kl_divergence_by_hand(reference, probabilities, expected):
    p, q = torch.tensor(reference, dtype=torch.double), torch.tensor(probabilities, dtype=torch.double)
    assert metrics.kl_divergence(p, q.log()).item() == pytest.approx(expected, abs=1e-12)


def test_kl_divergence_from_an_undefined_reference_is_undefined():
    assert metrics.kl_divergence(torch.full((3,), torch.nan), torch.zeros(3)).isnan()
