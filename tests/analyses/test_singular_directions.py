"""Directions by singular value: what a hand-set sum carries along one and two of them, and what random ones do."""

import pytest
import torch

from mnemoscope import InputError, PromptPairs, Site
from mnemoscope.analyses import direction_effects, head_directions, subspace
from mnemoscope.systems.puzzles.constructed.digit_sum import adder
from mnemoscope.systems.puzzles.tasks.digit_sum import DigitSum
from tests.support import seeded

TASK = DigitSum()
MODEL = adder(TASK)
PLACE = 1
POS = TASK.due[PLACE]


@pytest.fixture(scope="module")
def batch():
    return TASK.sample(2000, split="test", generator=seeded())


@pytest.fixture(scope="module")
def carried(batch):
    """Pairs that differ in the carry into a place."""
    pairs = PromptPairs.from_task(TASK, TASK.sample(600, split="test", generator=seeded(1)), kind="flip_carry")
    pairs = pairs.select(pairs.corrupted.known["asker"] == POS)
    return pairs.read_at(pairs.scored & (torch.arange(TASK.n_ctx) == POS))


def found(batch, latent, site, **options):
    return subspace(MODEL, batch, latent, site=site, method="means", n_shuffles=1, **options)


def test_the_carry_lies_on_the_direction_that_its_head_writes(batch, carried):
    site = Site(kind="resid_post", layer=0, pos=POS)
    carry = found(batch, f"carry_{PLACE}", site, given=f"units_{PLACE}")
    effects = direction_effects(MODEL, carried, carry, ranks=(1,), n_random=3)
    assert effects.swapped.item() == pytest.approx(1, abs=0.02)
    assert effects.rest.item() == pytest.approx(0, abs=0.02)
    assert effects.followed.item() > 0.98
    assert abs(effects.random).max().item() < 0.5
    assert effects.share.item() > 0.9


def test_digits_lie_on_two_directions_and_not_on_one(batch, carried):
    digit = found(batch, f"digit_{PLACE}", Site(kind="resid_post", layer=1, pos=POS))
    effects = direction_effects(MODEL, carried, digit, ranks=(1, 2), n_random=1)
    assert effects.followed.sel(rank=2).item() > 0.9
    assert effects.followed.sel(rank=1).item() < 0.8
    assert effects.rest.sel(rank=2).item() == pytest.approx(0, abs=0.1)
    one_by_one = adder(TASK, digits="one by one")
    site = Site(kind="resid_post", layer=1, pos=POS)
    digit = subspace(one_by_one, batch, f"digit_{PLACE}", site=site, method="means", n_shuffles=1)
    assert direction_effects(one_by_one, carried, digit, ranks=(2,)).followed.item() < 0.5


def test_a_head_writes_its_carry_on_one_direction(batch, carried):
    head = head_directions(MODEL, batch, layer=0, head=1, tokens=range(10))
    assert head.basis.shape == (1, MODEL.cfg.d_model)
    effects = direction_effects(MODEL, carried, head, n_random=0)
    assert effects.swapped.item() == pytest.approx(1, abs=1e-4)
    assert effects.sizes["draw"] == 0


def test_the_rank_keeps_the_first_directions(batch):
    site = Site(kind="resid_post", layer=1, pos=POS)
    whole, two = (found(batch, f"digit_{PLACE}", site, rank=rank) for rank in (None, 2))
    assert torch.equal(whole.basis[:2], two.basis)
    assert whole.sizes is not None
    assert two.sizes is not None
    assert torch.equal(whole.sizes, two.sizes)
    assert (whole.sizes.diff() <= 0).all()


def test_what_has_no_order_or_no_such_direction_is_refused(batch, carried):
    site = Site(kind="resid_post", layer=1, pos=POS)
    oblique = subspace(MODEL, batch, f"digit_{PLACE}", site=site, n_shuffles=1)
    with pytest.raises(InputError, match="in an order"):
        direction_effects(MODEL, carried, oblique)
    digit = found(batch, f"digit_{PLACE}", site)
    with pytest.raises(InputError, match="a rank must be"):
        direction_effects(MODEL, carried, digit, ranks=(60,))
    with pytest.raises(InputError, match="writes the same for all tokens"):
        head_directions(MODEL, batch, layer=0, head=2)
    with pytest.raises(InputError, match="a latent must be one of"):
        subspace(MODEL, batch, f"carry_{PLACE}", site=site, given="attention", method="means")
