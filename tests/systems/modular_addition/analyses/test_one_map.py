"""The map in which every neuron reads one frequency of both numbers: models by hand are it, a table is not."""

import pytest
import torch

from mnemoscope.systems.modular_addition.analyses.one_map import one_map
from mnemoscope.systems.modular_addition.constructed import clock, lookup, pizza
from mnemoscope.systems.modular_addition.tasks import ModularAddition

TASK = ModularAddition(modulus=17)


@pytest.mark.parametrize("make", [clock, pizza])
def test_a_clock_and_a_pizza_are_the_map(make):
    found = one_map(make(TASK, frequencies=(1, 3, 5)), TASK)
    assert {name: float(found[name]) for name in ("accuracy", "explained", "phases", "evenness")} == pytest.approx(
        {"accuracy": 1, "explained": 1, "phases": 1, "evenness": 1}, abs=1e-4
    )


def test_a_table_is_not():
    found = one_map(lookup(TASK), TASK)
    assert float(found.accuracy) < 0.2
    assert float(found.explained) < 0.2


def test_what_neurons_write_decides_the_phases():
    """Written at other phases the fits are as good, and the phases disagree."""
    model = pizza(TASK, frequencies=(1, 3, 5))
    with torch.no_grad():
        model.blocks[0].mlp.W_out[:] = -model.blocks[0].mlp.W_out
    found = one_map(model, TASK)
    assert float(found.explained) == pytest.approx(1)
    assert float(found.phases) == pytest.approx(-1)
