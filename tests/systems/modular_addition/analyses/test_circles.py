"""Fourier modes, restricted and excluded losses, and forms of logits, on functions that are known."""

import math

import pytest
import torch

from mnemoscope.systems.modular_addition.analyses.circles import (
    answer_logits,
    forms,
    key_frequencies,
    key_frequency_losses,
    modes_of,
    sum_modes,
    waves,
)
from mnemoscope.systems.modular_addition.constructed import clock, lookup, pizza
from mnemoscope.systems.modular_addition.tasks import ModularAddition

P = 11
TASK = ModularAddition(modulus=P)
NUMBER = torch.arange(P).double()


def angle(k, of=NUMBER):
    return 2 * math.pi * k * of / P


def test_waves_are_orthonormal():
    every = waves(P).flatten(0, 1)
    assert torch.allclose(every @ every.T, torch.eye(P - 1, dtype=torch.double), atol=1e-12)


def test_a_circle_and_a_line_by_hand():
    table = torch.zeros(P, 4, dtype=torch.double)
    table[:, 0], table[:, 1] = angle(2).cos(), angle(2).sin()
    table[:, 2], table[:, 3] = 3 * angle(4).cos() + 5, 0.5
    modes = modes_of(table)
    assert modes.share.values.tolist() == pytest.approx([0, 2 / 11, 0, 9 / 11, 0], abs=1e-12)
    assert modes.roundness.sel(frequency=[2, 4]).values.tolist() == pytest.approx([1, 0], abs=1e-12)
    assert float(modes["round"]) == pytest.approx(2 / 11)
    assert float(modes.few) == pytest.approx(1)


def test_a_constant_embedding_has_no_modes():
    assert modes_of(torch.ones(P, 3)).share.sum() == pytest.approx(0, abs=1e-12)


def test_the_power_of_sum_modes_is_that_of_a_function_of_the_sum():
    sums = NUMBER[:, None] + NUMBER
    logits = angle(3, sums[..., None] - NUMBER).cos()
    power = sum_modes(logits).square().sum((1, 2))
    assert float(power[2]) == pytest.approx(float(logits.square().sum()))
    assert float(power.sum()) == pytest.approx(float(power[2]))
    assert key_frequencies(logits).tolist() == [3]


def test_logits_of_the_difference_alone_have_no_sum_modes():
    logits = angle(3, NUMBER[:, None, None] - NUMBER[:, None] - NUMBER).cos()
    assert float(sum_modes(logits).abs().max()) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("make", [clock, pizza])
def test_what_is_made_of_two_frequencies_needs_no_others(make):
    found = key_frequency_losses(make(TASK, frequencies=(2, 3)), TASK)
    assert int(found.n_key) == 2
    assert sorted(found.attrs["key"]) == [2, 3]
    assert float(found.accuracy.sel(logits="restricted")) == 1


def test_without_its_frequencies_a_clock_guesses_and_a_pizza_keeps_terms_in_the_difference():
    of_clock, of_pizza = (
        float(key_frequency_losses(make(TASK, frequencies=(2, 3)), TASK).accuracy.sel(logits="excluded"))
        for make in (clock, pizza)
    )
    assert of_clock < 0.2
    assert of_pizza > 2 * of_clock


def test_a_table_has_all_frequencies():
    assert int(key_frequency_losses(lookup(TASK), TASK).n_key) == P // 2


def test_circles_together_hide_the_form_and_one_at_a_time_show_it():
    """Many directions of a pizza fill each other's gaps: with all frequencies its logits are nearly a clock's."""
    task = ModularAddition(modulus=17)
    model = pizza(task, frequencies=range(1, 6))
    logits = answer_logits(model, task)
    number = torch.arange(17).double()
    sums = number[:, None, None] + number[:, None] - number
    due = torch.stack([(2 * math.pi * k * sums / 17).cos() for k in range(1, 6)]).sum(0)
    together = (logits * due).sum().square() / (logits.square().sum() * due.square().sum())
    shares = forms(model, task).share
    assert float(shares.sel(form="pizza")) == pytest.approx(1, abs=0.01)
    assert float(shares.sel(form="clock")) == pytest.approx(0.81, abs=0.01)
    assert float(together) > 0.7


def test_the_form_of_a_clock_is_exact_but_for_its_pieces():
    shares = forms(clock(TASK, frequencies=(2, 3)), TASK).share
    assert float(shares.sel(form="clock")) == pytest.approx(1, abs=0.005)
    assert float(shares.sel(form="pizza")) < 0.9
