"""Which layer holds the second half of a composition, of models whose layers are known."""

import pytest
import torch

from mnemoscope import InputError
from mnemoscope.systems.k_hop.analyses import exchanged_halves, held_in_order
from mnemoscope.systems.k_hop.constructed import doubling
from mnemoscope.systems.k_hop.tasks import KHop
from tests.support import seeded

TASK = KHop(hidden_seed=3)


def two(n=100, task=TASK):
    return (task.sample(n, split="test", generator=seeded(side)) for side in (0, 1))


def test_doubling_holds_each_half_one_layer_before_it_is_fetched():
    found = exchanged_halves(doubling(TASK), TASK, *two())
    assert found.accuracy.dims == ("hops", "layer")
    assert found.hops.values.tolist() == [2, 4]
    assert found.accuracy.sel(hops=2).values.tolist() == [1, 0, 0]
    assert found.unchanged.sel(hops=2).values.tolist() == [0, 1, 1]
    four = found.accuracy.sel(hops=4).values
    assert four[1:].tolist() == [1, 0]
    assert four[0] == pytest.approx(0.25, abs=0.05), "what is exchanged there goes on along the base sequence"
    assert held_in_order(found) == 1


def test_a_model_that_does_not_compose_holds_nothing():
    stopped = exchanged_halves(doubling(TASK, reached=2), TASK, *two())
    assert held_in_order(stopped) == pytest.approx(0.25, abs=0.05)
    other = exchanged_halves(doubling(KHop(hidden_seed=5)), TASK, *two())
    assert held_in_order(other) < 0.5


def test_the_exchange_is_counted_by_hand():
    """Two hops of one sequence: the second one as in the other sequence, whose first function is never read."""
    base, source = two(1)
    hidden, own, other = TASK.hidden(), base.inputs.argmax(-1)[0], source.inputs.argmax(-1)[0]
    expected = {}
    for function in range(4):
        for argument in range(4):
            first = int(own[4 * function + hidden[function, argument]])
            ahead = (function + 1) % 4
            second = (int(each[4 * ahead + hidden[ahead, first]]) for each in (own, other))
            expected[function, argument] = tuple(second)
    differ = [one != two for one, two in expected.values()]
    found = exchanged_halves(doubling(TASK), TASK, base, source)
    assert 0 < sum(differ) < 16
    assert float(found.accuracy.sel(hops=2, layer=0)) == 1
    assert torch.equal(base.latents["after_2"][0], torch.tensor([one for one, _ in expected.values()]))


def test_what_cannot_be_exchanged_is_refused():
    base, source = two(4)
    with pytest.raises(InputError, match="as many sequences"):
        exchanged_halves(doubling(TASK), TASK, base, source.select(slice(2)))
    odd = KHop(hops=(1, 3), hidden_seed=3)
    with pytest.raises(InputError, match="a number and its double"):
        exchanged_halves(doubling(TASK), odd, *two(4, odd))
