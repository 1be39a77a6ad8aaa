"""P6 to P10: controls, what decides them, and what the originals of the course give."""

import numpy as np
import pytest
import torch

from mnemoscope import InputError
from mnemoscope.claims import EFFECT, GATE
from mnemoscope.models import load_original
from mnemoscope.systems.puzzles.analyses.digit_sum import agreement, carry_heads, carry_orders, mode_shares
from mnemoscope.systems.puzzles.analyses.first_unique import suppression
from mnemoscope.systems.puzzles.claims.digit_sum import P8, P9, P10, measure_directions, measure_layers, measure_order
from mnemoscope.systems.puzzles.claims.first_unique import P6, P7, measure_sharing, measure_suppression
from mnemoscope.systems.puzzles.constructed.digit_sum import ORDERS
from mnemoscope.systems.puzzles.constructed.first_unique import counter
from mnemoscope.systems.puzzles.tasks.digit_sum import DigitSum
from mnemoscope.systems.puzzles.tasks.first_unique import FirstUnique
from tests.originals import original_file
from tests.systems.on_trial import on, verdict
from tests.systems.planting import misbehaving


@pytest.mark.slow
@pytest.mark.parametrize("claim", [P6, P7, P8, P9, P10], ids=lambda claim: claim.id)
def test_their_controls_behave(claim):
    assert misbehaving(claim) == {}


def outcomes(claim, **found):
    return [verdict(one, {GATE: 1.0, **found}).outcome[0] for one in (claim, *claim.rivals)]


def test_what_decides_them():
    assert outcomes(P6, keys=0.3, values=0.2, queries=0.0) == ["S", "R", "R"]
    assert outcomes(P6, keys=0.3, values=0.0, queries=0.0) == ["R", "S", "R"]
    assert outcomes(P6, keys=0.0, values=0.0, queries=0.9) == ["R", "R", "S"]
    assert outcomes(P7, **{EFFECT: 0.8}, share=0.9, largest=0.4) == ["S", "R", "R"]
    assert outcomes(P7, **{EFFECT: 0.2}, share=0.5, largest=0.4) == ["R", "S", "R"]
    assert outcomes(P7, **{EFFECT: 0.0}, share=1.0, largest=1.0) == ["R", "R", "S"]
    assert outcomes(P8, circle=0.9, followed=1.0, early=1.0) == ["S", "R"]
    assert outcomes(P8, circle=0.9, followed=0.3, early=1.0) == ["R", "S"]
    assert outcomes(P9, carries=1.0, order=1.0, either=1.0, size=0.55) == ["S", "R", "R", "R"]
    assert outcomes(P9, carries=1.0, order=0.89, either=1.0, size=0.55) == ["R", "S", "R", "R"]
    assert outcomes(P9, carries=1.0, order=0.5, either=0.5, size=0.5) == ["R", "R", "R", "S"]
    assert outcomes(P10, **{EFFECT: 4.0}) == ["S", "R"]
    assert outcomes(P10, **{EFFECT: 0.0}) == ["R", "R"]


def test_agreement_with_an_order_by_hand():
    one, other = torch.tensor([0, 9, 4, 3]), torch.tensor([9, 0, 4, 6])
    more = torch.tensor([1.0, 1.0, 1.0, 0.0])  # the third has equal digits, the last is a tie
    assert agreement(ORDERS["published"], one, other, more) == pytest.approx((1 + 0 + 0.5) / 3)
    assert agreement(ORDERS["nine first"], one, other, more) == pytest.approx((0 + 1 + 0.5) / 3)


def test_a_circle_is_one_mode_and_a_table_all():
    angle = 2 * torch.pi * 3 * torch.arange(10) / 10
    assert mode_shares(torch.stack((angle.cos(), angle.sin()), 1) + 5) == pytest.approx([0, 0, 1, 0, 0], abs=1e-6)
    assert mode_shares(torch.eye(10)) == pytest.approx(np.array([2, 2, 2, 2, 1]) / 9)


def test_counting_has_no_duplicate_token_head():
    found = suppression(on(counter(FirstUnique()), FirstUnique()))
    assert (found["n_duplicates"], found["keys"], found["values"]) == (0, 0, 0)
    assert found["queries"] > 0.8


def test_measures_refuse_other_tasks():
    subject = on(counter(FirstUnique()), DigitSum())
    with pytest.raises(InputError, match="first unique letter"):
        measure_suppression(subject)
    with pytest.raises(InputError, match="about sums"):
        measure_order(on(counter(FirstUnique()), FirstUnique()))


def test_the_original_shares_its_letters_out():
    subject = load_original(original_file("first-unique"), "first-unique")
    found = measure_sharing(subject)
    assert found[EFFECT] == pytest.approx(0.84, abs=0.05)
    assert found["n_owners"] == 3
    found = measure_suppression(subject)
    assert found["duplicates"] > 0.85
    assert [found[name] for name in ("keys", "values", "queries")] == pytest.approx([0.29, 0.19, 0.0], abs=0.06)


def test_the_original_adds_on_a_circle_and_mirrors_the_order_at_one_place():
    subject = load_original(original_file("sum"), "digit-sum")
    found = measure_directions(subject)
    assert min(found[name] for name in ("circle", "followed", "early")) > 0.9
    orders, heads = carry_orders(subject), carry_heads(subject)
    assert orders.published.values == pytest.approx([1, 0.89, 1], abs=0.03)
    assert orders["nine first"].values == pytest.approx([0.89, 1, 0.89], abs=0.03)
    assert heads["head"].values.tolist() == [2, 1, 0]
    assert measure_layers(subject)[EFFECT] == pytest.approx(5.4, abs=1)
