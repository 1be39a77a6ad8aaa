"""B5 and B10: the order in which memories are learned."""

from dataclasses import replace

import pytest

from mnemoscope.claims.claim import GATE
from mnemoscope.core.errors import InputError
from mnemoscope.models.constructed.stand_ins import prescribe_course
from mnemoscope.models.subjects import untrained
from mnemoscope.systems.in_context_bigrams.claim_parts import NEVER
from mnemoscope.systems.in_context_bigrams.claims.order_of_learning import (
    B5,
    B10,
    BOTH,
    IN_ORDER,
    JOINT,
    MANY,
    MEMORIES,
    READINGS,
    courses,
    early_and_late,
    onsets,
    order,
)
from tests.systems.on_trial import verdict
from tests.systems.planting import effects_of, misbehaving, outcomes


def one(*steps):
    return prescribe_course(JOINT, {"memories": courses(*steps)})


def both(*pairs):
    return prescribe_course(BOTH, {name: courses(50, 100, *pair) for name, pair in zip(BOTH, pairs, strict=True)})


@pytest.mark.parametrize("claim", [B5, B10], ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert misbehaving(claim) == {}
    for value in claim.factors["reading"]:
        assert misbehaving(claim, reading=value) == {}


def test_differences_by_hand():
    found = order(one(40, 120, 90, NEVER)(0)["memories"])  # kept every 10 steps up to 300, the last is 600
    assert [found[memory] for memory in IN_ORDER] == [40, 120, 601, 90]
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
    kept = 0.6 * (subject.trajectory.step < 500)
    lost = subject.trajectory.assign({f"{kind}_{MEMORIES['output']}": kept for kind in ("recall", "matched")})
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
    never = early_and_late(both((100, NEVER), (50, 60))(0)["memories"])
    assert never["longer"] == pytest.approx(5.01)


def gradually():
    """A course in which every recall grows by a hundredth every 5 steps, alike for all memories."""
    subject = one(40, 120, 90, 200)(0)["memories"]
    assert subject.trajectory is not None
    share = (subject.trajectory.step / 500).clip(max=1)
    return replace(subject, trajectory=subject.trajectory.map(lambda _: share))


def test_readings_by_hand():
    """Guessing reaches 4 of 5 triggers, 5 of 65 tokens, of 31 and of 127 positions in less than 1 % of cases."""
    subject = gradually()
    found = {reading: onsets(subject, reading, IN_ORDER) for reading in READINGS}
    assert set(found["matched"].values()) == {400}  # 4 of 5, for all
    assert found["half"] == {"output": 250, "match": 400, "previous": 250, "previous_early": 250}
    assert set(found["nine tenths"].values()) == {450}
    assert found["beyond chance"] == {"output": 40, "match": 400, "previous": 20, "previous_early": 90}


def test_all_readings_are_reported():
    found = order(one(40, 120, 90, 200)(0)["memories"])
    assert {f"output_before_match, {reading}" for reading in READINGS[1:]} < set(found)
    with pytest.raises(InputError, match="reading"):
        order(one(40, 120, 90, 200)(0)["memories"], reading="raw")


def test_guessed_triggers_are_not_learned():
    found = order(prescribe_course(JOINT, {"memories": courses(50, 100, 150, 300, guessed=0.6)})(0)["memories"])
    assert found["match"] == 100


def test_with_twenty_triggers_the_level_is_half_of_the_way():
    subject = gradually()
    many = replace(subject, task=replace(subject.task, n_triggers=MANY))
    assert set(onsets(many, "matched", IN_ORDER).values()) == {300}


def test_most_seeds_decide():
    cases = [effects_of(B5, one(*steps)) for steps in ((50, 100, 150, 300), (300, 200, 100, 150))]
    assert verdict(B5, cases).outcome == "MIXED"


def test_a_run_that_was_not_tracked_is_refused():
    with pytest.raises(InputError, match="mnemoscope evaluate --checkpoints"):
        order(untrained(JOINT)(0)["memories"])
