from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from mnemoscope.claims.claim import GATE
from mnemoscope.models.constructed.stand_ins import predict_exactly
from mnemoscope.models.subjects import untrained
from mnemoscope.systems.tiny_recall.claim_parts import V3
from mnemoscope.systems.tiny_recall.claims.onset import EPOCH, T10, measure
from tests.systems.on_trial import verdict
from tests.systems.planting import misbehaving


@pytest.fixture(scope="module")
def subject():
    return predict_exactly(V3, "bayes")(0)["v3"]


def logged(subject, recall):
    """One line every half epoch."""
    steps = np.arange(len(recall)) * EPOCH / 2
    return replace(subject, progress=xr.Dataset({"test_recall": ("step", recall)}, coords={"step": steps}))


def times(subject, recall):
    found = measure(logged(subject, recall))
    return found["onset"], found["width"]


def test_onset_and_width_by_hand(subject):
    found = measure(logged(subject, [0.2, 0.3, 0.6, 0.4, 0.45, 0.5, 0.8, 0.9, 1.0]))
    assert found["onset"] == 2.5  # the .6 does not last
    assert found["width"] == 2.0  # from the .4 in line 3 to the .9 in line 7
    assert found["onset_distance"] == 7.0
    assert found[GATE] == 1


def test_a_jump_is_as_wide_as_the_interval_between_two_lines(subject):
    assert times(subject, [0.2, 0.2, 1.0, 1.0]) == (1.0, 0.5)


def test_a_log_that_is_never_low_counts_from_its_first_line(subject):
    assert times(subject, [0.45, 0.6, 0.95]) == (0.5, 1.0)
    assert times(subject, [0.95, 1.0]) == (0.0, 0.0)


def test_what_never_comes_has_no_time(subject):
    assert np.isnan(times(subject, [0.2, 0.3, 0.2])).all()
    onset, width = times(subject, [0.2, 0.6, 0.8])
    assert onset == 0.5
    assert np.isnan(width)
    assert np.isnan(measure(subject)["onset"])  # nothing was logged


@pytest.mark.parametrize(
    ("control", "expected"),
    [
        (0, ["SUPPORTED", "SUPPORTED", "REFUTED"]),
        (1, ["REFUTED", "SUPPORTED", "REFUTED"]),
        (2, ["REFUTED", "REFUTED", "SUPPORTED"]),
    ],
)
def test_planted_trajectories_decide(control, expected):
    cases = [measure(T10.controls[control].plant(case)["v3"]) for case in range(2)]
    assert [verdict(claim, cases).outcome for claim in (T10, *T10.rivals)] == expected


def test_at_the_margin_nothing_is_decided(subject):
    steps = {"onset": 11.0, "onset_distance": 1.5, "width": 0.5, GATE: 1.0}
    assert verdict(T10, [steps]).outcome == "INCONCLUSIVE"


def test_untrained_models_are_not_judged():
    assert verdict(T10, [measure(untrained(V3)(0)["v3"])]).outcome == "NOT_APPLICABLE"


def test_controls_behave():
    assert misbehaving(T10) == {}
