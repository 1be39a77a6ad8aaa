"""P1 to P5: their controls, what is measured of hand-set models, and of the published one."""

import pytest

from mnemoscope import InputError
from mnemoscope.claims import EFFECT, GATE
from mnemoscope.models import load_original
from mnemoscope.systems.puzzles.claims import blind_places, palindrome
from mnemoscope.systems.puzzles.constructed.palindrome import (
    BLIND,
    COUNTING,
    OWN_DIRECTIONS,
    PUBLISHED,
    REPAIRED,
    SHARED,
    mirror_reader,
)
from mnemoscope.systems.puzzles.tasks.palindrome import Palindrome
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.originals import original_file
from tests.systems.on_trial import on
from tests.systems.planting import misbehaving

CLAIMS = (palindrome.P1, palindrome.P2, palindrome.P3, blind_places.P4, blind_places.P5)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_their_controls_behave(claim):
    assert misbehaving(claim) == {}


def measured(measure, circuit):
    return measure(on(mirror_reader(circuit), Palindrome()))


@pytest.mark.parametrize(
    ("circuit", "pairs", "by_some"), [(PUBLISHED, 1, 1), (BLIND, 0.8, 0.8), (SHARED, 0.5, 1), (COUNTING, 1, 1)], ids=str
)
def test_compared_pairs_are_those_of_the_circuit(circuit, pairs, by_some):
    found = measured(palindrome.measure_comparison, circuit)
    assert found == {GATE: found[GATE], "pairs": pytest.approx(pairs), "by_some": pytest.approx(by_some)}
    assert found[GATE] > 0.98


def test_what_the_reporter_reads():
    exact = measured(palindrome.measure_report, PUBLISHED)
    assert exact["looks"] == pytest.approx(1, abs=1e-4)
    assert [exact[name] for name in ("keys", "values")] == pytest.approx([2, 2], abs=1e-3)  # right becomes wrong
    assert [exact[name] for name in ("queries", "tokens")] == pytest.approx([0, 0], abs=1e-6)
    counting = measured(palindrome.measure_report, COUNTING)
    assert counting["keys"] == pytest.approx(0, abs=1e-6)
    assert counting["values"] > 1
    assert counting["looks"] < 0.4


def test_directions_are_one_or_as_many_as_places():
    one, own = (measured(palindrome.measure_direction, each) for each in (PUBLISHED, OWN_DIRECTIONS))
    assert (one["n_places"], one["flips"]) == (10, 1)
    assert one["cosine"] > 0.95
    assert abs(own["cosine"]) < 0.3


@pytest.mark.parametrize(("circuit", "n_blind"), [(PUBLISHED, 0), (BLIND, 2), (REPAIRED, 1)], ids=str)
def test_blind_places_are_counted(circuit, n_blind):
    assert measured(blind_places.measure_blindness, circuit)["n_blind"] == n_blind


def test_margins_of_a_repair():
    found = {name: measured(blind_places.measure_repair, c) for name, c in (("one", REPAIRED), ("all", SHARED))}
    assert found["one"][EFFECT] == pytest.approx(0.25, abs=0.05)  # everything is lost at one place, nothing elsewhere
    assert found["all"]["several"] == pytest.approx(0.75, abs=0.05)
    assert found["all"][EFFECT] < 0
    assert measured(blind_places.measure_repair, PUBLISHED)["idle"] == pytest.approx(0.25, abs=0.05)


def test_other_tasks_are_refused():
    with pytest.raises(InputError, match="measures models of palindrome; got a model of"):
        palindrome.measure_comparison(on(mirror_reader(), PermutationLookup()))


def test_the_published_model_has_the_published_circuit():
    """Head 0.0 compares and 1.0 reports; places 17 and 19, pairs 3 and 1, are blind; 1.1 repairs place 20, pair 0."""
    subject = load_original(original_file("palindrome"), "palindrome")
    first, second = palindrome.measure_comparison(subject), palindrome.measure_report(subject)
    assert first["pairs"] == pytest.approx(0.8)
    assert second["looks"] > 0.9
    assert second["tokens"] < 0.05
    assert blind_places.measure_blindness(subject)["n_blind"] == 2
    assert blind_places.measure_repair(subject)[EFFECT] > 0.1
