"""K1 to K5: their effects, their controls, and what decides them."""

from dataclasses import replace

import pytest

from mnemoscope import InputError
from mnemoscope.claims import GATE
from mnemoscope.models.constructed import step_course
from mnemoscope.systems.k_hop.claim_parts import ALONE, CHANCE, CURRICULUM, MIXTURE, SHALLOW, STAGES, TASK, errors
from mnemoscope.systems.k_hop.claims import alone, curricula, depth, held_back, order
from mnemoscope.systems.k_hop.claims.depth import composer
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.systems.on_trial import on, verdict
from tests.systems.planting import misbehaving, outcomes

CLAIMS = (depth.K1, alone.K2, curricula.K3, order.K4, held_back.K5)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_their_controls_behave(claim):
    assert misbehaving(claim) == {}


def test_errors_of_a_model_that_composes_two_hops():
    assert errors(on(composer(2), TASK)) == pytest.approx({"hops_1": 0, "hops_2": 0, "hops_4": 3 / 16}, abs=1e-5)
    with pytest.raises(InputError, match="about k-fold composition"):
        errors(on(composer(2), PermutationLookup()))


def decided(claim, measured):
    return [verdict(one, claim.compare(measured)).outcome for one in (claim, *claim.rivals)]


def hops(one, two, four):
    return {"hops_1": one, "hops_2": two, "hops_4": four}


@pytest.mark.parametrize(
    ("deep", "shallow", "expected"),
    [(0.01, 0.18, ["SUPPORTED", "REFUTED"]), (0.18, 0.18, ["REFUTED", "REFUTED"]), (0.01, 0.01, ["SUPPORTED"] * 2)],
)
def test_what_decides_k1(deep, shallow, expected):
    assert decided(depth.K1, {MIXTURE: hops(0, 0, deep), SHALLOW: hops(0, 0, shallow)}) == expected


@pytest.mark.parametrize(
    ("found", "mixture", "expected"),
    [
        (0.187, 0.0, ["SUPPORTED", "REFUTED"]),
        (0.001, 0.0, ["REFUTED", "SUPPORTED"]),
        (0.187, 0.1, ["NOT_APPLICABLE", "NOT_APPLICABLE"]),
    ],
)
def test_what_decides_k2(found, mixture, expected):
    assert decided(alone.K2, {ALONE: hops(0.7, 0.5, found), MIXTURE: hops(0, mixture, 0)}) == expected


@pytest.mark.parametrize(
    ("mixture", "curriculum", "stages", "expected"),
    [
        (0.0, 0.0, 0.18, ["SUPPORTED", "REFUTED"]),
        (0.0, 0.1, 0.18, ["REFUTED", "REFUTED"]),
        (0.1, 0.0, 0.18, ["REFUTED", "REFUTED"]),
        (0.0, 0.0, 0.01, ["SUPPORTED", "SUPPORTED"]),
    ],
)
def test_what_decides_k3(mixture, curriculum, stages, expected):
    measured = {MIXTURE: hops(0, mixture, 0), CURRICULUM: hops(curriculum, 0, 0), STAGES: hops(0.4, 0.2, stages)}
    assert decided(curricula.K3, measured) == expected


def trained(*steps):
    """The composer with a planted training in which the numbers of hops are learned at these steps."""
    courses = {
        f"loss_hops_{h}": step_course(step, low=CHANCE, high=0.0) for h, step in zip((1, 2, 4), steps, strict=True)
    }
    return order.with_trajectory(courses, 4, 0)[MIXTURE]


def test_the_effects_of_k4():
    subject = trained(200, 400, 800)
    found = order.measure(subject)
    assert [found[f"hops_{h}"] for h in (1, 2, 4)] == [200, 400, 800]
    assert (found["lead"], found["last_two"], found["held"]) == (200, 400, 1)
    assert found[GATE] == pytest.approx(0, abs=1e-6)
    with pytest.raises(InputError, match="no trajectory"):
        order.measure(on(composer(4), TASK))


def test_what_is_never_learned_comes_last():
    subject = trained(200, 400, 800)
    assert subject.trajectory is not None
    early = subject.trajectory.sel(step=slice(0, 600))
    assert order.measure(replace(subject, trajectory=early))["hops_4"] == 2 * float(early.step[-1])


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (order._in_turn, ["SUPPORTED", "REFUTED"]),
        (order._tied, ["REFUTED", "SUPPORTED"]),
        (order._not_held, ["NOT_APPLICABLE", "NOT_APPLICABLE"]),
    ],
    ids=["in turn", "together", "not composed"],
)
def test_what_decides_k4(plant, expected):
    assert list(outcomes(order.K4, plant(kind="positive").plant).values()) == expected


@pytest.mark.parametrize(
    ("one", "four", "expected"),
    [
        (500, 1150, ["SUPPORTED", "REFUTED"]),
        (200, 1150, ["SUPPORTED", "SUPPORTED"]),
        (500, 850, ["REFUTED", "REFUTED"]),
        (200, 850, ["REFUTED", "SUPPORTED"]),
    ],
)
def test_what_decides_k5(one, four, expected):
    free = {**hops(200.0, 350.0, 850.0), GATE: 0.01}
    held = {**hops(float(one), 600.0, float(four)), GATE: 0.01}
    assert decided(held_back.K5, {MIXTURE: free, held_back.LATE: held}) == expected
