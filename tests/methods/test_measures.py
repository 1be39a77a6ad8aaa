"""Measures by hand."""

import numpy as np
import pytest

from mnemoscope.methods import KNOWN_CIRCUITS
from mnemoscope.methods.measures import (
    SHARES,
    areas,
    auroc,
    nested_circuits,
    precision_and_recall,
    precision_at_size,
    protocol_auroc,
)
from mnemoscope.methods.trial import _setting

TRUTH = np.array([True, True, False, False, False])


def test_auroc_counts_pairs_and_ties_half():
    """True edges win three of six pairs and tie one: the second lies below two false ones and equals another."""
    assert auroc(np.array([3.0, 1.0, 2.0, 1.0, 2.5]), TRUTH) == pytest.approx((3 + 0.5) / 6)
    assert auroc(np.zeros(5), TRUTH) == 0.5
    assert np.isnan(auroc(np.arange(5.0), np.ones(5, dtype=bool)))


def test_precision_at_size_breaks_ties_by_chance():
    assert precision_at_size(np.array([3.0, 2.0, 1.0, 0.0, 0.0]), TRUTH) == 1
    assert precision_at_size(np.array([3.0, 1.0, 1.0, 1.0, 0.0]), TRUTH) == pytest.approx((1 + 1 / 3) / 2)
    assert precision_at_size(np.zeros(5), TRUTH) == pytest.approx(2 / 5)


def test_precision_and_recall_of_a_choice():
    assert precision_and_recall(np.array([True, False, True, True, False]), TRUTH) == (pytest.approx(1 / 3), 1 / 2)
    empty, recall = precision_and_recall(np.zeros(5, dtype=bool), TRUTH)
    assert np.isnan(empty)
    assert recall == 0


def test_areas_by_hand():
    """A curve that jumps above one: CPR gains by it, CMD loses."""
    assert areas((0, 0.5, 1), [0, 2, 1]) == (pytest.approx(0.5 * 1 + 0.5 * 1.5), pytest.approx(0.5 * 1 + 0.5 * 0.5))
    assert areas(SHARES, np.ones(10)) == (pytest.approx(0.999), 0)
    assert areas(SHARES, np.zeros(10)) == (0, pytest.approx(0.999))


@pytest.fixture(scope="module")
def setting():
    known = KNOWN_CIRCUITS.get("induction")()
    return _setting(known, known.pairs(8, 0))


def test_circuits_have_the_sizes_of_the_benchmark(setting):
    """29 edges: shares below 1/29 round down to none."""
    scores = np.arange(29.0)
    scores[0] = -100
    sizes = [0, 0, 0, 0, 0, 1, 2, 5, 14, 29]
    absolute, signed = (nested_circuits(setting, scores, signed=signed) for signed in (False, True))
    assert absolute.sum(1).tolist() == signed.sum(1).tolist() == sizes
    assert absolute[5].nonzero()[0].tolist() == [0]
    assert signed[5].nonzero()[0].tolist() == [28]


def test_the_protocol_of_the_benchmark_is_no_plain_auroc(setting):
    """A perfect ranking falls short of one, since its points are few and start after the first edge."""
    truth = np.array([str(edge) in KNOWN_CIRCUITS.get("induction")().edges for edge in setting.edges])
    assert auroc(truth.astype(float), truth) == 1
    assert 0.9 < protocol_auroc(setting, truth.astype(float), truth) < 1
