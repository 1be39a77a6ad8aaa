from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from mnemoscope.core.errors import InputError
from mnemoscope.models.subjects import untrained
from mnemoscope.systems.in_context_bigrams.claims.learning_speed import B7, B7_GENERIC, B9, falls, ratio, reached
from tests.systems.on_trial import verdict
from tests.systems.planting import misbehaving


@pytest.fixture(scope="module")
def subject():
    return untrained(B9.units)(0)["birth-fixed"]


def tracked(subject, **measures):
    """One checkpoint every 10 steps."""
    columns = {name: ("step", np.array(values)) for name, values in measures.items()}
    steps = np.arange(len(next(iter(measures.values())))) * 10
    return replace(subject, trajectory=xr.Dataset(columns, coords={"step": steps}))


def falling(subject, in_context, elsewhere, **factors):
    return falls(tracked(subject, loss_in_context=in_context, loss_global=elsewhere), **factors)


def speeds(frequent, rare):
    return ratio({"birth-fixed": {"onset": frequent}, "birth-rare": {"onset": rare}})


def test_half_of_a_fall_by_hand(subject):
    """The middle between 4 and 0 is 2, passed for good at step 40; that between 3 and 2 is 2.5, at step 10."""
    found = falling(subject, [4.0, 3.0, 2.0, 2.5, 1.0, 0.0], [3.0, 2.5, 2.4, 2.0, 2.2, 2.1])
    assert found == {"in_context": 40, "global": 10, "later": 30}


def test_other_shares_of_a_fall(subject):
    losses = [4.0, 3.0, 2.0, 1.0, 0.0], [3.0, 2.9, 2.5, 2.2, 2.0]
    assert falling(subject, *losses, fallen=0.25) == {"in_context": 10, "global": 20, "later": -10}
    assert falling(subject, *losses, fallen=0.75) == {"in_context": 30, "global": 30, "later": 0}


def test_a_loss_that_never_falls_has_its_onset_after_the_end(subject):
    assert falling(subject, [3.0, 3.0, 3.0], [1.0, 2.0, 1.5]) == {"in_context": 21, "global": 21, "later": 0}
    assert falling(subject, [4.0, 1.0, 4.0], [3.0, 2.0, 2.0]) == {"in_context": 21, "global": 10, "later": 11}


def test_when_accuracy_is_there_to_stay(subject):
    run = tracked(subject, accuracy_in_context=[0.1, 0.6, 0.4, 0.5, 0.9])
    assert reached(run) == {"onset": 30}
    assert reached(run, threshold=0.75) == {"onset": 40}
    assert reached(run, threshold=0.95) == {"onset": 41}


def test_without_a_trajectory_nothing_is_measured(subject):
    for measure in (falls, reached):
        with pytest.raises(InputError, match="mnemoscope evaluate --checkpoints"):
            measure(subject)


def test_a_ratio_in_powers_of_two():
    assert speeds(200, 400) == {"difference": 1, "rare_later": 1, "frequent": 200, "rare": 400}
    assert speeds(400, 100)["rare_later"] == -2
    assert speeds(400, 100)["difference"] == 2
    assert speeds(0, 4)["rare_later"] == 2  # a measure that is there from the start


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ((200, 400), ["SUPPORTED", "SUPPORTED", "REFUTED"]),
        ((400, 200), ["SUPPORTED", "REFUTED", "SUPPORTED"]),
        ((400, 425), ["REFUTED", "REFUTED", "REFUTED"]),
        ((801, 801), ["REFUTED", "REFUTED", "REFUTED"]),
    ],
)
def test_what_decides_b9(case, expected):
    assert [verdict(claim, speeds(*case)).outcome for claim in (B9, *B9.rivals)] == expected


def test_both_directions_in_turn_support_a_difference_without_a_direction():
    cases = [speeds(200, 400), speeds(400, 200)]
    assert [verdict(claim, cases).outcome for claim in (B9, *B9.rivals)] == ["SUPPORTED", "MIXED", "MIXED"]


@pytest.mark.parametrize("claim", [B7, B7_GENERIC], ids=lambda claim: claim.id)
@pytest.mark.parametrize(("later", "expected"), [(50, "SUPPORTED"), (-10, "REFUTED"), (0, "INCONCLUSIVE")])
def test_what_decides_b7(claim, later, expected):
    assert verdict(claim, {"in_context": 300.0, "global": 300.0 - later, "later": later}).outcome == expected


@pytest.mark.parametrize("claim", [B7, B7_GENERIC], ids=lambda claim: claim.id)
@pytest.mark.parametrize("factors", [{}, {"fallen": 0.25}, {"fallen": 0.75}])
def test_controls_of_b7_behave(claim, factors):
    assert misbehaving(claim, **factors) == {}


@pytest.mark.parametrize("factors", [{}, {"threshold": 0.25}, {"threshold": 0.75}])
def test_controls_of_b9_behave(factors):
    assert misbehaving(B9, **factors) == {}
