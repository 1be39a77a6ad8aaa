import pytest
import torch
from scipy.stats import chisquare

from mnemoscope.core.errors import InputError
from mnemoscope.systems.in_context_bigrams.markov import AliasTable, alias_table, shakespeare, stationary, walk
from tests.support import seeded

CHAIN = torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [1.0, 0.0, 0.0]], dtype=torch.double)


def free(n: int, n_tokens: int) -> torch.Tensor:
    return torch.full((n, n_tokens), -1)


def probabilities(table: AliasTable) -> torch.Tensor:
    """What a table says: of every column its own token has the threshold's share, the alias the rest."""
    own = table.threshold.double()
    return own.scatter_add(1, table.alias, 1 - own) / own.shape[1]


@pytest.mark.parametrize("chain", [CHAIN, shakespeare().transitions, torch.eye(4), torch.full((2, 7), 1 / 7)])
def test_an_alias_table_holds_the_distributions_it_was_made_of(chain):
    table = alias_table(chain)
    assert ((table.threshold >= 0) & (table.threshold <= 1)).all()
    torch.testing.assert_close(probabilities(table), chain.double(), atol=1e-7, rtol=0)
    assert (probabilities(table)[chain == 0] == 0).all()  # what never happens never happens


@pytest.mark.parametrize("row", [[0.5, 0.4], [1.5, -0.5], [float("nan"), 1.0]])
def test_rows_that_are_no_distributions_are_refused(row):
    with pytest.raises(InputError, match="add up to 1"):
        alias_table(torch.tensor([row]))


def plain_walk(first, table, length, prescribed, seed, noise=0.0, noise_token=0):
    """One token after another, from the random numbers that `walk` draws."""
    generator, n = seeded(seed), len(first)
    n_tokens = prescribed.shape[1]
    column = torch.randint(n_tokens, (length - 1, n), generator=generator).tolist()
    level = torch.rand(length - 1, n, generator=generator)
    replaced = torch.rand(length - 1, n, generator=generator) < noise if noise else level > 2
    rows = []
    for row in range(n):
        tokens = [int(first[row])]
        for step in range(length - 1):
            state, j = tokens[-1], column[step][row]
            if prescribed[row, state] >= 0:
                tokens.append(noise_token if replaced[step, row] else int(prescribed[row, state]))
            else:
                tokens.append(j if level[step, row] < table.threshold[state, j] else int(table.alias[state, j]))
        rows.append(tokens)
    return rows


@pytest.mark.parametrize("noise", [{}, {"noise": 0.4, "noise_token": 2}])
def test_a_walk_is_what_a_loop_over_tokens_makes_of_the_same_numbers(noise):
    table, first = alias_table(CHAIN), torch.tensor([0, 1, 2, 1])
    prescribed = torch.tensor([[-1, -1, -1], [2, -1, -1], [-1, 1, -1], [1, 2, 0]])
    given = walk(first, table, 30, prescribed=prescribed, generator=seeded(3), **noise)
    assert given.tolist() == plain_walk(first, table, 30, prescribed, 3, **noise)


def test_without_prescriptions_bigrams_are_those_of_the_chain():
    first = torch.zeros(2000, dtype=torch.long)
    tokens = walk(first, alias_table(CHAIN), 40, prescribed=free(2000, 3), generator=seeded())
    for state in range(3):
        counts = torch.bincount(tokens[:, 1:][tokens[:, :-1] == state], minlength=3)
        possible = CHAIN[state] > 0
        assert counts[~possible].sum() == 0
        if possible.sum() > 1:
            assert chisquare(counts[possible], CHAIN[state][possible] * counts.sum()).pvalue > 1e-3


def test_noise_stands_in_the_place_of_prescribed_successors_only():
    prescribed = free(500, 4)
    prescribed[:, 0] = 1
    chain = torch.tensor([[0, 0, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]], dtype=torch.double)
    first = torch.zeros(500, dtype=torch.long)
    tokens = walk(first, alias_table(chain), 41, prescribed=prescribed, generator=seeded(), noise=0.3, noise_token=3)
    assert (tokens[:, ::2] == 0).all()
    after = tokens[:, 1::2]
    assert set(after.unique().tolist()) == {1, 3}
    assert abs((after == 3).double().mean().item() - 0.3) < 4 * (0.21 / 10_000) ** 0.5


def test_a_stationary_distribution_stays():
    shares = stationary(CHAIN)
    torch.testing.assert_close(shares @ CHAIN, shares)
    assert shares.sum().item() == pytest.approx(1)
    assert stationary(torch.tensor([[0.5, 0.5], [0.25, 0.75]])).tolist() == pytest.approx([1 / 3, 2 / 3], abs=1e-6)
