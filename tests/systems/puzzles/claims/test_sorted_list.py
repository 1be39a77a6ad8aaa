"""P11 and P12: controls, what decides them, and what the original of the course gives."""

import numpy as np
import pytest

from mnemoscope import InputError, ablate, generator
from mnemoscope.claims import GATE
from mnemoscope.models import load_original
from mnemoscope.systems.puzzles.analyses.sorted_list import accuracy, looks_and_copies, range_agreement, sharing
from mnemoscope.systems.puzzles.claims.sorted_list import P11, P12
from mnemoscope.systems.puzzles.constructed.sorted_list import TASK, bag_model, by_owner, range_model
from mnemoscope.systems.puzzles.tasks.palindrome import Palindrome
from tests.originals import original_file
from tests.systems.on_trial import on, verdict
from tests.systems.planting import misbehaving


@pytest.mark.parametrize("claim", [P11, P12], ids=lambda claim: claim.id)
def test_their_controls_behave(claim):
    assert misbehaving(claim) == {}


def outcomes(claim, **found):
    return [verdict(one, {GATE: 1.0, **found}).outcome for one in (claim, *claim.rivals)]


@pytest.mark.parametrize(
    ("looks", "causes", "expected"),
    [(0.9, 0.9, ["SUPPORTED", "REFUTED"]), (0.3, 0.9, ["REFUTED", "SUPPORTED"]), (0.9, 0.2, ["REFUTED", "REFUTED"])],
)
def test_what_decides_p11(looks, causes, expected):
    assert outcomes(P11, looks=looks, causes=causes, copies=1.0, predicted=0.8) == expected


@pytest.mark.parametrize(
    ("division", "in_range", "larger", "share", "expected"),
    [
        (0.9, 1.0, 0.8, 0.95, ["SUPPORTED", "REFUTED", "REFUTED", "REFUTED"]),
        (0.9, 0.4, 0.6, 0.95, ["REFUTED", "REFUTED", "REFUTED", "SUPPORTED"]),
        (0.9, 1.0, 0.95, 0.95, ["REFUTED", "SUPPORTED", "REFUTED", "REFUTED"]),
        (0.1, 0.4, 0.6, 0.55, ["REFUTED", "REFUTED", "SUPPORTED", "REFUTED"]),
    ],
)
def test_what_decides_p12(division, in_range, larger, share, expected):
    found = {"division": division, "range": in_range, "larger": larger, "share": share}
    assert outcomes(P12, **found) == expected


def test_ranges_are_told_from_other_sets_by_hand():
    assert range_agreement(np.array([0, 1, 1, 0, 0], dtype=bool)) == 1
    assert range_agreement(np.array([1, 0, 1, 1, 1], dtype=bool)) == 1
    assert range_agreement(np.array([0, 1, 0, 1, 0], dtype=bool)) == 0.8


def test_a_bag_sorts_without_a_look():
    model = on(bag_model(), TASK)
    assert accuracy(model) == 1
    found = looks_and_copies(model)
    assert found["looks"] == pytest.approx(0.1, abs=0.02)
    assert found["copies"] == 1
    assert accuracy(on(range_model(), TASK)) == 1


def test_the_range_of_a_head_is_found():
    found = sharing(on(by_owner(TASK, [int(value < 8) for value in TASK.answers]), TASK))
    assert (found["first"], found["last"]) == (0, 7)
    assert found["larger"] == pytest.approx(43 / 51)
    assert found["range"] == 1


def test_other_tasks_are_refused():
    with pytest.raises(InputError, match="about sorted lists"):
        sharing(on(range_model(), Palindrome()))


def test_the_original_gives_the_published_figures():
    """Published: loss .920 with head 0.0 mean-ablated, 4.963 with 0.1; here fresh lists."""
    original = load_original(original_file("sorted-list"), "sorted-list")
    batch = TASK.sample(2048, split="test", generator=generator(0, "published"))
    skills = {"answer": batch.scored}
    lost = ablate(original.model, batch, skills=skills, reference=batch, kinds=("mean",))
    assert -lost.clean_log_prob.item() < 0.05
    assert -lost.log_prob.sel(component="L0H0").item() == pytest.approx(0.920, abs=0.12)
    assert -lost.log_prob.sel(component="L0H1").item() == pytest.approx(4.963, abs=0.15)


def test_the_original_keeps_a_range_for_one_head():
    original = load_original(original_file("sorted-list"), "sorted-list")
    found = {**sharing(original), **looks_and_copies(original)}
    assert (found["first"], found["last"], found["range"]) == (28, 35, 1)
    assert found["looks"] > 0.75
    assert found["copies"] == 1
