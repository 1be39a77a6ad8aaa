"""Division of labour: tables by hand, a hand-set model, and what is refused."""

import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses.labour import division_of_labour, head_effects
from mnemoscope.core.errors import InputError
from mnemoscope.models.constructed.circuits import attention_memory, memory_batch
from tests.support import seeded


def table(*rows, own=None):
    """Effects by part and head, in tenths, the same on both halves unless `own` are others."""
    tested = np.array(rows, dtype=float) / 10
    both = np.stack((tested if own is None else np.array(own, dtype=float), tested))
    coords = {"part": [f"p{i}" for i in range(len(rows))], "head": [f"L0H{i}" for i in range(tested.shape[1])]}
    return xr.DataArray(both, dims=("half", "part", "head"), coords=coords)


@pytest.mark.parametrize(
    ("rows", "share", "random", "division"),
    [
        ([(2, 0), (0, 4)], 1, 0.5, 1),  # a head a part
        ([(2, 0), (4, 0)], 1, 1, 0),  # one head for both
        ([(1, 1), (2, 2)], 0.5, 0.5, 0),  # both for both
        ([(3, 1), (1, 3)], 0.75, 0.5, 0.5),
        ([(3, 1), (6, 2)], 0.75, 0.75, 0),  # unevenly, and the same for both
        ([(2, -5), (-5, 2)], 1, 0.5, 1),  # a head in whose absence answers are better
        ([(2, 0), (0, 0.5)], 0.75, 0.5, 0.5),  # a part without effects
        ([(2, 0, 0), (0, 3, 0), (0, 0, 4)], 1, 1 / 3, 1),
        ([(6, 6), (6, 0)], 0.75, 0.75, 0),  # one head for both, the other beside it
        ([(6, 5), (0, 6)], (6 / 11 + 1) / 2, 0.5, 6 / 11),
        ([(2, 0), (2, 0), (2, 0), (0, 2)], 1, 10 / 16, 1),  # as many parts each as before
    ],
)
def test_shares_and_their_random_assignment_by_hand(rows, share, random, division):
    found = division_of_labour(table(*rows))
    assert float(found.share) == pytest.approx(share)
    assert float(found.random) == pytest.approx(random)
    assert float(found.division) == pytest.approx(division)


def test_own_heads_are_chosen_on_the_other_half():
    found = division_of_labour(table((2, 0), (0, 2), own=[(1, 0), (1, 0)]))
    assert found.own.values.tolist() == ["L0H0", "L0H0"]
    assert float(found.share) == 0.5
    assert found["parts"].values.tolist() == [1, 0]
    assert float(found.division) == 0


def test_a_random_assignment_is_the_mean_over_all_permutations_of_own_heads():
    rows = [(3, 1), (1, 2), (5, 1)]
    shares = np.array([(3 / 4, 1 / 4), (1 / 3, 2 / 3), (5 / 6, 1 / 6)])
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    own = [0, 1, 0]
    by_hand = np.mean([np.mean([shares[part, own[order[part]]] for part in range(3)]) for order in orders])
    assert float(division_of_labour(table(*rows)).random) == pytest.approx(by_hand)


def test_effects_of_a_memory_are_those_of_its_head():
    mapping = [1, 2, 3, 4, 5, 0]
    model = attention_memory(mapping)
    batch = memory_batch(200, mapping, generator=seeded())
    parts = {str(token): batch.inputs == token for token in range(6)}
    effects = head_effects(model, batch, parts)
    assert effects.dims == ("half", "part", "head")
    assert (effects.sel(head="L0H0") > 1).all()
    assert abs(effects.sel(head="L0H1")).max() < 1e-6
    assert float(division_of_labour(effects).division) == 0
    lost = head_effects(model, batch, parts, metric="accuracy")
    assert (lost.sel(head="L0H0") <= 1).all()
    assert (lost.sel(head="L0H0") > 0.5).all()
    alone = head_effects(model, batch, parts, heads=[(0, 0)])
    assert np.allclose(alone.sel(head="L0H0"), effects.sel(head="L0H0"))


def test_what_cannot_be_divided_is_refused():
    with pytest.raises(InputError, match="at least two parts and two heads"):
        division_of_labour(table((1,), (2,)))
    with pytest.raises(InputError, match="two halves"):
        division_of_labour(table((1, 0), (0, 1)).isel(half=[0]))
    batch = memory_batch(20, [1, 0], generator=seeded())
    model = attention_memory([1, 0], n_ctx=4)
    short = memory_batch(20, [1, 0], n_ctx=4, generator=seeded())
    with pytest.raises(InputError, match="a head must be"):
        head_effects(model, short, {"all": short.scored}, heads=[(0, 2)])
    with pytest.raises(InputError, match="metric must be one of"):
        head_effects(model, short, {"all": short.scored}, metric="loss")
    only = torch.zeros_like(batch.scored)
    only[0] = True
    with pytest.raises(InputError, match="one half of the sequences only"):
        head_effects(attention_memory([1, 0, 2, 3]), batch, {"first": only})
