import pytest
import torch

from mnemoscope.analyses.interchange import arbitrary_answers, counterfactuals, random_pairs
from mnemoscope.core.batch import Batch
from mnemoscope.core.causal import CausalModel
from mnemoscope.core.errors import InputError
from mnemoscope.core.pairs import PromptPairs
from tests.support import global_generators_untouched, seeded


def batch(*rows: tuple[int, int]) -> Batch:
    tokens = torch.tensor(rows)
    return Batch(inputs=tokens, targets=tokens, scored=torch.ones_like(tokens, dtype=torch.bool))


def pairs(base: Batch, source: Batch) -> PromptPairs:
    return PromptPairs(clean=base, corrupted=source, name="by hand")


LAST = CausalModel(
    name="last", variables={"last": lambda known: known["tokens"][:, 1]}, answer=lambda known: known["last"]
)
TWO = CausalModel(
    name="two of four",
    variables=LAST.variables,
    answer=lambda known: (torch.arange(4) - known["last"][:, None]).remainder(4).lt(2) / 2,
)
"""The last token and the one after it, of four in a ring."""


def test_pairs_are_told_apart_by_what_follows():
    base, source = batch((0, 0), (0, 0), (0, 0), (0, 0)), batch((0, 0), (0, 1), (0, 2), (0, 3))
    wanted = counterfactuals(TWO, pairs(base, source), "last", 4)
    assert wanted.after[1].tolist() == [0, 0.5, 0.5, 0]
    over = {name: rows.tolist() for name, rows in wanted.pair_sets.items()}
    assert over == {"all": [True] * 4, "changing": [False, False, True, False], "kept": [True, False, False, False]}


def test_random_pairs_are_of_different_rows_and_the_same_for_a_seed():
    rows = batch(*((n % 7, n % 5) for n in range(35)))  # all different
    with global_generators_untouched():
        drawn = random_pairs(rows, 500)
    assert len(drawn) == 500
    assert (drawn.clean.inputs != drawn.corrupted.inputs).any(1).all()
    assert len(drawn.clean.inputs.unique(dim=0)) == len(drawn.corrupted.inputs.unique(dim=0)) == 35
    again, other = random_pairs(rows, 500), random_pairs(rows, 500, seed=1)
    assert torch.equal(again.corrupted.inputs, drawn.corrupted.inputs)
    assert not torch.equal(other.corrupted.inputs, drawn.corrupted.inputs)


def many(n: int, seed: int, n_tokens: int = 5):
    base, source = (torch.randint(n_tokens, (n, 2), generator=seeded(2 * seed + i)) for i in range(2))
    return counterfactuals(LAST, pairs(batch(*base.tolist()), batch(*source.tolist())), "last", n_tokens)


def test_an_arbitrary_answer_is_a_function_of_both_answers_and_is_neither():
    sets = [many(400, 0), many(100, 1)]
    with global_generators_untouched():
        changed = arbitrary_answers(sets)
    table = {}
    for natural, other in zip(sets, changed, strict=True):
        changing = natural.pair_sets["changing"]
        assert torch.equal(natural.pair_sets["changing"], other.pair_sets["changing"])
        assert torch.equal(natural.pair_sets["kept"], other.pair_sets["kept"])
        assert torch.equal(natural.after[~changing], other.after[~changing])
        tokens = [side[changing].argmax(1).tolist() for side in (natural.before, natural.after, other.after)]
        for before, after, said in zip(*tokens, strict=True):
            assert said not in (before, after)
            assert table.setdefault((before, after), said) == said
    assert len(table) == 20
    assert {(said - after) % 5 for (_, after), said in table.items()} == {1, 2, 3, 4}  # no simple rule
    assert not torch.equal(arbitrary_answers(sets, seed=1)[0].after, changed[0].after)


def test_arbitrary_answers_may_be_distributions():
    base, source = batch(*[(0, n % 3) for n in range(30)]), batch(*[(0, n % 5) for n in range(30)])
    three = CausalModel(
        name="three pairs",
        variables=LAST.variables,
        answer=lambda known: (torch.arange(6) // 2 == (known["last"] % 3)[:, None]) / 2,
    )
    wanted = counterfactuals(three, pairs(base, source), "last", 6)
    (other,) = arbitrary_answers([wanted])
    changing = wanted.pair_sets["changing"]
    assert torch.equal(other.after[changing] > 0, ~((wanted.before + wanted.after)[changing] > 0))


@pytest.mark.usefixtures("as_installed")
def test_what_has_no_arbitrary_answer_is_refused():
    with pytest.raises(InputError, match=r"so that three answers are needed; the \d+ changing pairs have 2"):
        arbitrary_answers([many(50, 0, n_tokens=2)])
    same = batch((0, 1), (0, 2))
    with pytest.raises(InputError, match="the 0 changing pairs"):
        arbitrary_answers([counterfactuals(LAST, pairs(same, same), "last", 3)])
    with pytest.raises(InputError, match="n must be at least 1"):
        random_pairs(batch((0, 1), (1, 0)), 0)
    with pytest.raises(InputError, match="the number of sequences that pairs are drawn from must be at least 2"):
        random_pairs(batch((0, 1)), 5)
