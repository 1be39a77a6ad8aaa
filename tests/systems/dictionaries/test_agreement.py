"""Agreement less chance: identities of both sides, and circuits that are alike or not."""

import numpy as np
import pytest
import torch

import mnemoscope as ms
from mnemoscope.systems.dictionaries import agreement
from mnemoscope.systems.dictionaries.agreement import Pair, beyond_chance, circuits_agree, jaccard, units_agree
from mnemoscope.systems.dictionaries.answers import read_answers
from mnemoscope.systems.dictionaries.constructed import PairRecall, copies, mixtures, mixtures_again
from mnemoscope.systems.dictionaries.units import ends
from tests.support import seeded


def planted(make) -> ms.Subject:
    return ms.Subject(model=make(), task=PairRecall(), seed=0)


@pytest.mark.parametrize(
    ("observed", "chance", "expected"),
    [(1, 0.4, 1), (0.7, 0.4, 0.5), (0.4, 0.4, 0), (0.1, 0.4, 0), (1, 1, 0), (np.nan, 0, 0)],
)
def test_agreement_lies_between_chance_and_identity(observed, chance, expected):
    assert beyond_chance(observed, chance) == pytest.approx(expected)


def test_shares_give_the_units_that_both_have_among_those_of_either():
    """Of 8 and 12 units 4 are matched, so that 16 are there; and nothing is matched, or nothing is there."""
    found = jaccard(np.array([[4 / 8, 4 / 12], [0, 0], [np.nan, 0]]))
    assert found.tolist() == pytest.approx([4 / 16, 0, 0])


def test_units_agree_with_their_copies_and_not_with_others():
    one, other = torch.randn(2, 200, 9, generator=seeded(0), dtype=torch.float32)
    how = {"threshold": 0.7, "seed": 0}
    assert units_agree(one, one[:, torch.randperm(9, generator=seeded(1))] * 3 + 1, **how) == pytest.approx(1)
    assert units_agree(one, other, **how) == 0
    assert units_agree(one, torch.cat([one[:, :3], other[:, :6]], 1), **how) == pytest.approx(3 / 15)


def test_circuits_agree_whatever_the_order_of_heads():
    one, again, other = map(planted, (mixtures, mixtures_again, copies))
    assert circuits_agree(Pair(one=one, other=again), target=0.9) == pytest.approx(1)
    assert circuits_agree(Pair(one=one, other=other), target=0.9) < 0.2
    by_role = agreement.circuit_by_role(again, target=0.9)
    edges = by_role.edge.values[by_role.values].tolist()
    assert edges == ["input → recall head v", "recall head → L0 MLP", "L0 MLP → logits"]


def test_mixtures_again_are_the_same_memory_in_other_neurons():
    one, again = map(planted, (mixtures, mixtures_again))
    assert ends(again.model, read_answers(again))[1] == 1
    logits = [subject.model(PairRecall().enumerate(split="test").inputs)[:, -1] for subject in (one, again)]
    torch.testing.assert_close(*logits, atol=1e-3, rtol=0)
    found = units_agree(*(read_answers(subject).post for subject in (one, again)), threshold=0.7, seed=0)
    assert found < 0.2


def test_a_partner_is_another_model_of_the_zoo(monkeypatch):
    pool = (planted(mixtures), planted(mixtures_again))
    monkeypatch.setattr(agreement, "partners", lambda: pool)
    subject = ms.Subject(model=mixtures(), task=PairRecall(), seed=81)
    assert agreement.paired(subject).other is pool[1]
    pair = Pair(one=subject, other=pool[0])
    assert agreement.paired(pair) is pair
