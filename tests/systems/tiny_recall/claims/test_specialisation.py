"""T23: heads specialise only if the data requires it."""

import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.models.subjects import set_by_hand, untrained
from mnemoscope.systems.tiny_recall.claims.specialisation import CLAIM, UNITS, compare, measure, models, outcome
from mnemoscope.systems.tiny_recall.constructed import elimination_only, twin_elimination, two_layer_recall
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.systems.planting import misbehaving, numbers, outcomes


@pytest.mark.parametrize("by", ["carried", "removal"])
def test_controls_behave(by):
    assert misbehaving(CLAIM, by=by) == {}


def test_index_of_circuits_that_are_known():
    alone, shared = (
        set_by_hand("v3-fresh", make, PermutationLookup())(0)["v3-fresh"]
        for make in (elimination_only, twin_elimination)
    )
    assert measure(alone) == pytest.approx({"index": 1, "elimination": 1, "recall": 0})
    assert measure(shared) == pytest.approx({"index": 0, "elimination": 1, "recall": 0}, abs=1e-5)
    assert measure(alone, by="removal")["index"] == pytest.approx(0.8)  # without it the lowest value: 1 of 5
    assert measure(shared, by="removal")["index"] == 0


def test_each_model_is_asked_for_what_it_is_trained_for():
    measured = outcome(0.9, 0.1)
    measured["v3-fresh"]["recall"] = 0.0
    assert compare(measured) == {"gate": 1.0, "with_repeats": 0.9, "without": 0.1}
    measured["v3"]["recall"] = 0.5
    assert compare(measured)["gate"] == 0.5


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (models(twin_elimination), ["SUPPORTED", "REFUTED"]),
        (models(elimination_only), ["REFUTED", "SUPPORTED"]),
        (numbers(outcome(0.2, 0.2)), ["REFUTED", "REFUTED"]),
        (untrained(UNITS), ["NOT_APPLICABLE"] * 2),
    ],
)
def test_verdicts(plant, expected):
    assert list(outcomes(CLAIM, plant).values()) == expected


def test_other_numbers_of_heads_are_refused():
    subject = set_by_hand("v3", two_layer_recall, PermutationLookup(repeat_ratio=0.3))(0)["v3"]
    with pytest.raises(InputError, match="two heads in all"):
        measure(subject)
