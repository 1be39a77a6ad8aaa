import math
from itertools import permutations, product

import pytest
import torch

from mnemoscope.systems.in_context_bigrams.ideal_learner import HiddenTriggers, global_bigram, predict
from mnemoscope.systems.in_context_bigrams.markov import alias_table, walk
from mnemoscope.systems.in_context_bigrams.successive_sampling import Draws
from mnemoscope.systems.in_context_bigrams.triggers import prescribed
from tests.support import seeded

UNIGRAM = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.double)
CHAIN = torch.tensor(
    [[0.1, 0.6, 0.2, 0.1], [0.5, 0.0, 0.25, 0.25], [0.3, 0.3, 0.3, 0.1], [0.7, 0.1, 0.1, 0.1]], dtype=torch.double
)
K = 2


def generator_known(*, noise: float | None = None, loops: bool = True, triggers=None) -> HiddenTriggers:
    n = 4 + (noise is not None)
    chain, outputs = torch.zeros(2, n, n, dtype=torch.double)
    chain[:4, :4], chain[4:, :4] = CHAIN, UNIGRAM
    outputs[:4, :4] = 1
    if not loops:
        outputs.fill_diagonal_(0)
    outputs[:4] /= outputs[:4].sum(1, keepdim=True)
    weights = torch.nn.functional.pad(UNIGRAM, (0, n - 4))
    given = {} if noise is None else {"noise": noise, "noise_token": 4}
    return HiddenTriggers(chain=chain, outputs=outputs, triggers=triggers or Draws(weights, K), **given)


def sequences(known: HiddenTriggers, n: int, length: int) -> torch.Tensor:
    generator = seeded()
    if isinstance(known.triggers, Draws):
        triggers = torch.multinomial(UNIGRAM.expand(n, -1), K, generator=generator)
    else:
        triggers = torch.tensor(known.triggers).expand(n, -1)
    outputs = torch.multinomial(known.outputs[triggers].flatten(0, 1), 1, generator=generator).view_as(triggers)
    first = torch.multinomial(UNIGRAM, n, replacement=True, generator=generator)
    successors = prescribed(triggers, outputs, len(known.chain))
    noise = {"noise": known.noise, "noise_token": max(known.noise_token, 0)}
    return walk(first, alias_table(known.chain), length, prescribed=successors, generator=generator, **noise)


def worlds(known: HiddenTriggers):
    """Every choice of triggers, in order, and of outputs: its probability and the chain that it makes."""
    n = len(known.chain)
    for triggers in permutations(range(4), K):
        fixed = None if isinstance(known.triggers, Draws) else known.triggers
        if fixed is not None and triggers != fixed:
            continue
        prior = 1.0 if fixed else UNIGRAM[triggers[0]] * UNIGRAM[triggers[1]] / (1 - UNIGRAM[triggers[0]])
        for outputs in product(range(4), repeat=K):
            weight, chain = float(prior), known.chain.clone()
            for trigger, output in zip(triggers, outputs, strict=True):
                weight *= known.outputs[trigger, output].item()
                chain[trigger] = 0
                chain[trigger, output] = 1 - known.noise
                if known.noise_token >= 0:
                    chain[trigger, known.noise_token] = known.noise
            assert chain.shape == (n, n)
            yield weight, chain


def by_listing(tokens: list[int], known: HiddenTriggers) -> list[list[float]]:
    """The prediction after every token: a mean over all worlds, weighted by how well they explain what was seen."""
    rows, chains = [], [(weight, chain) for weight, chain in worlds(known) if weight]
    weights = [weight for weight, _ in chains]
    for pos, token in enumerate(tokens):
        if pos:
            weights = [w * chain[tokens[pos - 1], token].item() for w, (_, chain) in zip(weights, chains, strict=True)]
        total = sum(weights)
        mean = sum(w * chain[token] for w, (_, chain) in zip(weights, chains, strict=True))
        rows.append((mean / total).tolist() if total else [math.nan] * len(known.chain))
    return rows


KINDS = [
    {},
    {"loops": False},
    {"noise": 0.3},
    {"noise": 0.6, "loops": False},
    {"noise": 1.0},
    {"triggers": (0, 2)},
    {"triggers": (1, 0), "noise": 0.5},
]


@pytest.mark.parametrize("fields", KINDS)
def test_predictions_are_those_of_a_mean_over_all_triggers_and_outputs(fields):
    known = generator_known(**fields)
    tokens = sequences(known, 4, 12)
    expected = torch.tensor([by_listing(row, known) for row in tokens.tolist()], dtype=torch.double)
    assert not expected.isnan().any()
    torch.testing.assert_close(predict(tokens, known), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("triggers", [None, (0, 2)])
def test_where_no_triggers_explain_the_tokens_nothing_is_predicted(triggers):
    known = generator_known(noise=0.5, triggers=triggers)
    tokens = torch.tensor([[0, 4, 1, 4, 2, 4, 2, 3]])  # noise followed three tokens, but there are two triggers
    expected = torch.tensor([by_listing(tokens[0].tolist(), known)], dtype=torch.double)
    given = predict(tokens, known)
    torch.testing.assert_close(given, expected, atol=1e-9, rtol=0, equal_nan=True)
    assert given.isnan().any()
    assert not given[:, :3].isnan().any()


def test_a_prediction_does_not_look_ahead():
    known = generator_known(noise=0.3)
    tokens = sequences(known, 20, 30)
    changed = tokens.clone()
    changed[:, 12:] = 1
    assert torch.equal(predict(tokens, known)[:, :12], predict(changed, known)[:, :12])


def test_predictions_are_calibrated():
    known = generator_known(noise=0.4)
    tokens = sequences(known, 800, 25)
    given = predict(tokens[:, :-1], known).flatten()
    happened = torch.nn.functional.one_hot(tokens[:, 1:], 5).flatten()
    for low in torch.arange(0, 1, 0.1).tolist():
        bin_ = (given > low) & (given <= low + 0.1)
        spread = (given[bin_] * (1 - given[bin_])).sum().sqrt()
        assert abs((happened[bin_] - given[bin_]).sum()) < 4 * spread + 1e-6


def test_global_bigrams_average_over_what_may_be_a_trigger():
    fixed = global_bigram(generator_known(noise=0.5, triggers=(0, 2)))
    assert fixed[0].tolist() == pytest.approx([0.125] * 4 + [0.5])
    assert fixed[1].tolist() == pytest.approx([*CHAIN[1].tolist(), 0])
    assert fixed[4].tolist() == pytest.approx([*UNIGRAM.tolist(), 0])
    share = Draws(UNIGRAM, K).inclusion[3].item()
    hidden = global_bigram(generator_known(noise=0.5))
    symbols = [0.125 * share + (1 - share) * p for p in CHAIN[3].tolist()]
    assert hidden[3].tolist() == pytest.approx([*symbols, 0.5 * share])
