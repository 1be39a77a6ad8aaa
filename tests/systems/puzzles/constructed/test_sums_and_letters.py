"""Hand-set sums and letters do their task, by the means that their circuits name."""

import pytest

from mnemoscope import evaluate
from mnemoscope.systems.puzzles.constructed.digit_sum import adder
from mnemoscope.systems.puzzles.constructed.first_unique import counter, suppressor
from mnemoscope.systems.puzzles.tasks.digit_sum import DigitSum
from mnemoscope.systems.puzzles.tasks.first_unique import FirstUnique
from tests.support import seeded

SUM, LETTERS = DigitSum(), FirstUnique()


def accuracy(model, task):
    batch = task.sample(800, split="test", generator=seeded())
    return evaluate(model, task, batch, by="skill", references=[]).accuracy.to_series().to_dict()


@pytest.mark.parametrize("digits", ["circle", "one by one"])
def test_weights_of_places_add_exactly(digits):
    assert set(accuracy(adder(SUM, carry="weights", digits=digits), SUM).values()) == {1.0}


@pytest.mark.parametrize(("carry", "of_chains"), [("published", 0), ("nine first", 1)])
def test_an_order_of_digits_adds_all_but_chains_of_one_kind(carry, of_chains):
    found = accuracy(adder(SUM, carry=carry), SUM)
    assert (found["plain"], found["carry"]) == (1, 1)
    share = SUM.sample(800, split="test", generator=seeded())
    carried = (share.latents["carry"] == of_chains)[share.latents["is_chain"]].double().mean()
    assert found["chain"] == pytest.approx(float(carried), abs=1e-9)


def test_the_order_of_size_gets_carries_wrong():
    assert accuracy(adder(SUM, carry="size"), SUM)["plain"] < 0.9


@pytest.mark.parametrize("sharing", ["own", "single", "graded"])
@pytest.mark.parametrize("values", ["both", "token", "copied"])
def test_letters_are_suppressed_exactly(sharing, values):
    assert set(accuracy(suppressor(LETTERS, sharing=sharing, values=values), LETTERS).values()) == {1.0}


def test_letters_are_counted_exactly():
    assert set(accuracy(counter(LETTERS), LETTERS).values()) == {1.0}
