"""P13 and P14: controls, what decides them, and what the original of the course gives."""

import pytest

from mnemoscope import InputError
from mnemoscope.claims import GATE
from mnemoscope.models import load_original
from mnemoscope.systems.puzzles.analyses.running_sum import accuracy, mean_or_sum, without_neurons
from mnemoscope.systems.puzzles.claims.running_sum import P13, P14
from mnemoscope.systems.puzzles.constructed.running_sum import TASK, counting_model, direct_model, mean_model
from mnemoscope.systems.puzzles.constructed.sorted_list import range_model
from mnemoscope.systems.puzzles.tasks.sorted_list import SortedList
from tests.originals import original_file
from tests.systems.on_trial import on, verdict
from tests.systems.planting import misbehaving


@pytest.mark.parametrize("claim", [P13, P14], ids=lambda claim: claim.id)
def test_their_controls_behave(claim):
    assert misbehaving(claim) == {}


@pytest.mark.parametrize("make", [mean_model, counting_model, direct_model])
def test_models_set_by_hand_tell_every_sign(make):
    assert accuracy(on(make(), TASK)) == 1


def outcomes(claim, **found):
    return [verdict(one, {GATE: 1.0, **found}).outcome for one in (claim, *claim.rivals)]


@pytest.mark.parametrize(
    ("mean", "total", "uneven", "expected"),
    [
        (1.0, 0.4, 0.0, ["SUPPORTED", "REFUTED"]),
        (0.4, 1.0, 0.0, ["REFUTED", "SUPPORTED"]),
        (1.0, 0.4, 0.3, ["REFUTED", "REFUTED"]),
    ],
)
def test_what_decides_p13(mean, total, uneven, expected):
    found = {"mean": mean, "sum": total, "advantage": mean - total, "uneven": uneven, "rank": 1.0}
    assert outcomes(P13, **found) == expected


@pytest.mark.parametrize(
    ("zero", "signs", "expected"),
    [(0.9, 0.1, ["SUPPORTED", "REFUTED"]), (0.2, 0.9, ["REFUTED", "SUPPORTED"]), (0.4, 0.6, ["REFUTED", "REFUTED"])],
)
def test_what_decides_p14(zero, signs, expected):
    assert outcomes(P14, zero=zero, signs=signs, one_sign=1.0) == expected


def test_other_tasks_are_refused():
    with pytest.raises(InputError, match="about running sums"):
        mean_or_sum(on(range_model(), SortedList()))


def test_the_original_gives_the_published_figures():
    """Published: loss .536 and probability .637 without the MLP; cosines +.970, -.958 and -.949."""
    original = load_original(original_file("cumsum"), "running-sum")
    assert accuracy(original) > 0.99
    silent, written = without_neurons(original), mean_or_sum(original)
    assert silent["loss"] == pytest.approx(0.536, abs=0.01)
    assert silent["right"] == pytest.approx(0.637, abs=0.005)
    assert written["cos positive"] == pytest.approx(0.970, abs=0.001)
    assert written["cos negative"] == pytest.approx(-0.958, abs=0.001)
    assert written["cos both"] == pytest.approx(-0.949, abs=0.001)
    assert written["rank"] > 0.999
