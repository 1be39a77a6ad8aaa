"""E1 to E7, and both of the minimal model: their controls, and what decides them."""

import pytest

from mnemoscope import InputError
from mnemoscope.systems.markov.claim_parts import AFTER, BALANCED, EIGHT, THREE, TWO, induction_by_hand
from mnemoscope.systems.markov.claims import change, circuit, delay, finite_chains, minimal, phases, predictor
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.systems.on_trial import on, verdict
from tests.systems.planting import misbehaving

CLAIMS = (
    predictor.E1,
    phases.E2,
    change.E3,
    delay.E4,
    circuit.E5,
    phases.E6,
    finite_chains.E7,
    minimal.E2_MINIMAL,
    minimal.E3_MINIMAL,
)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_their_controls_behave(claim):
    assert misbehaving(claim) == {}


def decided(claim, measured):
    found = measured if claim.compare is None else claim.compare(measured)
    return [verdict(one, found).outcome for one in (claim, *claim.rivals)]


@pytest.mark.parametrize(
    ("closed", "linear", "expected"),
    [
        ((0.8, 0.8, 0.8), (-0.01, -0.01, -0.01), ["SUPPORTED", "REFUTED"]),
        ((0.8, 0.8, 0.4), (-0.01, -0.01, -0.01), ["REFUTED", "REFUTED"]),
        ((0.8, 0.8, 0.8), (0.01, 0.01, 0.01), ["SUPPORTED", "SUPPORTED"]),
    ],
)
def test_what_decides_e1(closed, linear, expected):
    found = {
        unit: {"closed": share, "kl": 0.02, "linear": less, "gain": 2.0}
        for unit, share, less in zip((TWO, THREE, EIGHT), closed, linear, strict=True)
    }
    assert decided(predictor.E1, found) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((800, 550, 750), ["SUPPORTED", "REFUTED"]),
        ((800, 550, 450), ["REFUTED", "SUPPORTED"]),
        ((800, 550, 580), ["REFUTED", "REFUTED"]),
        ((600, 550, 750), ["REFUTED", "REFUTED"]),
    ],
)
def test_what_decides_e4(steps, expected):
    rows, balanced, after = steps
    found = {THREE: {"step": rows}, BALANCED: {"step": balanced}, AFTER: {"step": after + 300}}
    assert decided(delay.E4, found) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, ["SUPPORTED", "REFUTED"]),
        ({"width": 0.8}, ["REFUTED", "REFUTED"]),
        ({"apart": -0.4}, ["REFUTED", "REFUTED"]),
        ({"ready_before": 0.0}, ["REFUTED", "REFUTED"]),
        ({"ready_before": -0.3}, ["REFUTED", "SUPPORTED"]),
    ],
)
def test_what_decides_e3(found, expected):
    assert decided(change.E3, {"width": 0.15, "apart": 0.1, "ready_before": 0.2, **found}) == expected


@pytest.mark.parametrize(
    ("few", "many", "expected"),
    [
        ({}, {"retrieves": -0.1}, ["SUPPORTED", "REFUTED"]),
        ({"retrieves": -0.1}, {"retrieves": -0.1}, ["REFUTED", "SUPPORTED"]),
        ({}, {}, ["REFUTED", "REFUTED"]),
        ({}, {"retrieves": -0.1, "unigram_first": 0.0}, ["REFUTED", "REFUTED"]),
    ],
)
def test_what_decides_e7(few, many, expected):
    meant = {"retrieves": 0.1, "bigrams": 0.1, "unigram_first": 1.0}
    found = {finite_chains.FEW: {**meant, **few}, finite_chains.MANY: {**meant, **many}}
    assert decided(finite_chains.E7, found) == expected


def test_a_model_that_has_not_learned_is_none_of_e5():
    found = {"previous": 0.9, "successors": 0.5, "keys": 0.9}
    assert decided(circuit.E5, {**found, "gate": 0.4}) == ["NOT_APPLICABLE"] * 2
    assert decided(circuit.E5, {**found, "gate": 0.8}) == ["SUPPORTED", "REFUTED"]
    assert decided(circuit.E5, {**found, "gate": 0.8, "keys": 0.3}) == ["REFUTED", "SUPPORTED"]


def test_models_of_other_tasks_and_runs_that_were_not_tracked_are_refused():
    subject = on(induction_by_hand(), PermutationLookup())
    for measure in (predictor.measure, circuit.measure, phases.measure):
        with pytest.raises(InputError, match="the task must be in-context Markov chains; got permutation-lookup"):
            measure(subject)
    with pytest.raises(InputError, match="there is no trajectory of this run; track it first"):
        change.measure(subject)
