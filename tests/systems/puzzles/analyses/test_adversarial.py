"""Blind places and nested brackets are found by changes of tokens."""

import pytest

from mnemoscope.models import load_original
from mnemoscope.systems.puzzles.analyses.adversarial import adversarial_search
from mnemoscope.systems.puzzles.constructed.palindrome import BLIND, PUBLISHED, mirror_reader
from mnemoscope.systems.puzzles.tasks.brackets import CLOSE, OPEN, Brackets
from mnemoscope.systems.puzzles.tasks.palindrome import Palindrome
from tests.originals import original_file
from tests.support import seeded

TASK = Palindrome()


@pytest.mark.parametrize(("circuit", "blind"), [(BLIND, {1, 3}), (PUBLISHED, set())], ids=["blind", "seeing"])
def test_an_exhaustive_search_finds_blind_places(circuit, blind):
    start = TASK.sample(40, split="test", generator=seeded())
    start = start.select(start.targets[:, -1] == 1).select(slice(1))
    places = [TASK.second_place(pair) for pair in range(TASK.half)]
    found = adversarial_search(
        mirror_reader(circuit), start, TASK.from_tokens, tokens=range(4), positions=places, n_kept=None
    )
    assert found.attrs["n_tried"] == found.sizes["rank"] <= 1 + 4 * TASK.half
    wrong = found.isel(rank=(found.log_prob < -1).values)
    differs = (wrong.sequence.values != start.inputs[0].numpy()).any(0).nonzero()[0]
    changed = {TASK.n_ctx - 2 - pos for pos in differs.tolist()}
    assert changed == blind
    assert (found.log_prob.diff("rank") >= 0).all()


def test_a_guided_search_goes_on_from_the_worst():
    start = TASK.broken_only(2, 1, generator=seeded())
    found = adversarial_search(
        mirror_reader(BLIND), start, TASK.from_tokens, tokens=[0, 1], positions=[2, 4], n_changes=2, n_kept=3
    )
    assert found.sizes["rank"] == 3
    assert set(found.change.values.tolist()) <= {0, 1, 2}


def test_changes_of_a_nested_sequence_of_the_published_model_stay_wrong():
    task = Brackets()
    subject = load_original(original_file("brackets"), "brackets")
    start = task.parse("(" * 15 + ")" * 15 + ")(" + "((((" + "))))")
    found = adversarial_search(
        subject.model, start, task.batch, tokens=[OPEN, CLOSE], positions=[31, 32], n_changes=2, n_kept=None
    )
    worst = found.isel(rank=0)
    assert worst.sequence.values.tolist() == start.inputs[0].tolist()
    assert float(worst.log_prob) < -8
