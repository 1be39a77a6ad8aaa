"""B5 and B10: the order in which memories are learned."""

from dataclasses import replace

import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.judging.claim import GATE
from mnemoscope.models.constructed.stand_ins import following
from mnemoscope.models.subjects import untrained
from mnemoscope.systems.in_context_bigrams.claim_parts import NEVER
from mnemoscope.systems.in_context_bigrams.claims.order_of_learning import (
    B5,
    B10,
    BOTH,
    JOINT,
    MEMORIES,
    courses,
    early_and_all,
    order,
)
from tests.systems.on_trial import verdict
from tests.systems.planting import effects_of, misbehaving, outcomes


def one(*steps):
    return following(JOINT, {"memories": courses(*steps)})


def both(*pairs):
    return following(BOTH, {name: courses(50, 100, *pair) for name, pair in zip(BOTH, pairs, strict=True)})


@pytest.mark.parametrize("claim", [B5, B10], ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert misbehaving(claim) == {}
    for value in claim.factors["threshold"]:
        assert misbehaving(claim, threshold=value) == {}


def test_differences_by_hand():
    found = order(one(40, 120, 90, NEVER)(0)["memories"])  # kept every 10 steps up to 300, the last is 600
    assert [found[memory] for memory in MEMORIES] == [40, 120, 601, 90]
    assert found["output_before_match"] == 80
    assert found["match_before_previous"] == 481
    assert found["match_before_previous_early"] == -30 == -found["previous_early_before_match"]
    assert found[GATE] == 1


def test_an_onset_lies_between_two_checkpoints():
    found = order(one(41, 120, 90, 200)(0)["memories"])
    assert found["output"] == 50


def test_what_was_learned_and_lost_is_never_there_but_passes_the_gate():
    subject = one(40, 120, 90, 200)(0)["memories"]
    assert subject.trajectory is not None
    lost = subject.trajectory.assign({MEMORIES["output"]: 0.6 * (subject.trajectory.step < 500)})
    found = order(replace(subject, trajectory=lost))
    assert found["output"] == 601
    assert found[GATE] == 0.6
    assert found["output_before_match"] == -481


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((50, 100, 150, 300), ["SUPPORTED", "SUPPORTED", "REFUTED"]),
        ((50, 150, 100, 300), ["SUPPORTED", "REFUTED", "SUPPORTED"]),
        ((50, 150, 100, 120), ["REFUTED", "REFUTED", "SUPPORTED"]),
        ((150, 100, 200, 300), ["REFUTED", "REFUTED", "REFUTED"]),  # the keys are matched before the output is learned
        ((50, 100, 100, 100), ["INCONCLUSIVE", "INCONCLUSIVE", "INCONCLUSIVE"]),
        ((NEVER, 100, 150, 300), ["NOT_APPLICABLE"] * 3),
    ],
)
def test_verdicts_on_planted_orders(steps, expected):
    assert list(outcomes(B5, one(*steps)).values()) == expected


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (((100, 200), (50, 300)), "SUPPORTED"),
        (((100, 110), (50, 300)), "REFUTED"),
        (((200, 250), (50, 300)), "INCONCLUSIVE"),  # a margin longer
        (((NEVER, NEVER), (50, 300)), "REFUTED"),
    ],
)
def test_early_and_late_positions(pairs, expected):
    assert outcomes(B10, both(*pairs)) == {"B10": expected}


def test_ratios_by_hand():
    found = effects_of(B10, both((100, 250), (0, 300)))
    assert found["memories"] == 1.5
    assert found["memories-all"] == 299  # at step 0 counts as at step 1
    assert found["memories previous"] == 250
    never = early_and_all(both((100, NEVER), (50, 60))(0)["memories"])
    assert never["longer"] == pytest.approx(5.01)


def test_most_seeds_decide():
    cases = [effects_of(B5, one(*steps)) for steps in ((50, 100, 150, 300), (300, 200, 100, 150))]
    assert verdict(B5, cases).outcome == "MIXED"


def test_a_run_that_was_not_tracked_is_refused():
    with pytest.raises(InputError, match="mnemoscope track"):
        order(untrained(JOINT)(0)["memories"])
