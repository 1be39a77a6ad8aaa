"""Metrics as values: what they give on logits set by hand, and which functions are refused."""

import math
import pickle

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import ACCURACY, KL, LOG_PROB, LOGIT_DIFF, METRICS, PROB, Metric, check_metric
from tests.support import seeded

LOGITS = torch.tensor([[[1.0, 2.0, 4.0]], [[0.0, 0.0, 0.0]]]).log()
LOGITS[1] = torch.tensor([3.0, 0.0, 0.0])
ANSWER, FOIL = torch.tensor([[2], [1]]), torch.tensor([[0], [2]])
CLEAN = torch.zeros(2, 1, 3)


def test_by_hand():
    def of(metric):
        return metric(LOGITS, ANSWER, FOIL, CLEAN)[:, 0].tolist()

    e3 = math.exp(3)
    assert of(LOGIT_DIFF) == pytest.approx([math.log(4), 0])
    assert of(LOG_PROB) == pytest.approx([math.log(4 / 7), -math.log(e3 + 2)])
    assert of(PROB) == pytest.approx([4 / 7, 1 / (e3 + 2)])
    assert of(ACCURACY) == [1, 0]
    assert of(KL)[0] == pytest.approx(-math.log(3) - (0 + math.log(2) + math.log(4) - 3 * math.log(7)) / 3)


def test_the_divergence_of_the_clean_logits_from_themselves_is_zero():
    assert KL(LOGITS, ANSWER, FOIL, LOGITS + 5).abs().max() < 1e-6


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_what_comes_with_the_package_passes_its_own_check_and_travels(metric):
    check_metric(metric, LOGITS, ANSWER, FOIL, generator=seeded())
    assert pickle.loads(pickle.dumps(metric)) == metric


def metric(function):
    return Metric(name="mine", unit="logits", function=function)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda logits, answer, foil: logits.gather(-1, answer[..., None])[..., 0], "mine moves when a constant"),
        (lambda logits, answer, foil: logits.mean(-1) * 1e-3, "mine moves when a constant"),
        (lambda logits, answer, foil: logits.log_softmax(-1), r"shape \(2, 1\); it gave shape \(2, 1, 3\)"),
        (lambda logits, answer, foil: (logits - logits).mean(), r"it gave shape \(\)"),
        (lambda logits, answer, foil: (logits - logits).sum(-1) / 0, "mine is NaN"),
    ],
)
def test_functions_that_measure_no_prediction_are_refused(function, words):
    with pytest.raises(InputError, match=words):
        check_metric(metric(function), LOGITS, ANSWER, FOIL, generator=seeded())


@pytest.mark.usefixtures("as_installed")
def test_a_metric_says_which_way_is_better():
    with pytest.raises(InputError, match="better, worse; got 'up'"):
        Metric(name="mine", unit="", function=LOG_PROB.function, higher_is="up")
