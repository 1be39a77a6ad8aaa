"""Models by hand: exact, and told apart by the measures, where the measures can."""

import pytest
import torch

from mnemoscope.systems.modular_addition.analyses.circles import answer_logits, embedding_modes, forms
from mnemoscope.systems.modular_addition.analyses.gradients import evened, irrelevance, symmetricity
from mnemoscope.systems.modular_addition.constructed import clock, lookup, pizza
from mnemoscope.systems.modular_addition.tasks import ModularAddition

SMALL = ModularAddition(modulus=17)
HAND = {"clock": clock, "pizza": pizza, "lookup": lookup}


@pytest.mark.parametrize("name", HAND)
@pytest.mark.parametrize("p", [17, 31])
def test_every_sum_is_right(name, p):
    task = ModularAddition(modulus=p)
    model = HAND[name](task, **({} if name == "lookup" else {"frequencies": (1, 3, 5, 8)}))
    assert torch.equal(answer_logits(model, task).argmax(-1).flatten(), task.table().latents["sum"])


def test_the_measures_tell_a_clock_from_a_pizza():
    of_clock, of_pizza = (make(SMALL, frequencies=(1, 3, 5)) for make in (clock, pizza))
    assert symmetricity(of_clock, SMALL) == pytest.approx(0, abs=0.03)
    assert symmetricity(of_pizza, SMALL) == pytest.approx(1, abs=0.001)
    assert irrelevance(of_clock, SMALL) > 0.9
    assert irrelevance(of_pizza, SMALL) < 0.1
    for model, best in ((of_clock, "clock"), (of_pizza, "pizza")):
        shares = forms(model, SMALL).share
        assert float(shares.sel(form=best)) > 0.999
        assert float(shares.min()) < 0.9
        modes = embedding_modes(model, SMALL)
        assert float(modes.few) == pytest.approx(1)
        assert modes.share.sel(frequency=[1, 3, 5]).values.tolist() == pytest.approx([1 / 3] * 3, abs=1e-6)
        assert float(modes["round"]) == pytest.approx(1, abs=1e-5)


def test_a_table_is_a_clock_to_both_numbers_and_has_no_circles():
    model = lookup(SMALL)
    assert symmetricity(model, SMALL) == pytest.approx(1 / 17**2, abs=0.02)
    assert irrelevance(model, SMALL) > 0.9
    assert float(forms(model, SMALL).share.max()) < 0.1
    assert embedding_modes(model, SMALL).share.values.tolist() == pytest.approx([1 / 8] * 8, abs=1e-6)


def test_even_attention_makes_a_clock_symmetric():
    model = clock(SMALL, frequencies=(1, 3, 5))
    assert evened(model, SMALL) > 0.72 > symmetricity(model, SMALL)
