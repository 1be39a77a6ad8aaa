"""The minimal model: its logits by their definition, a bigram by hand, and a short training."""

import math

import pytest
import torch

from mnemoscope.systems.markov.analyses.distances import frequencies, prompts
from mnemoscope.systems.markov.claims.minimal import measure_order, measure_phases
from mnemoscope.systems.markov.minimal import EVERY, MinimalModel, train_minimal
from mnemoscope.systems.markov.tasks import MarkovChains

TASK = MarkovChains(length=12)


def by_hand(model, tokens):
    """Logits of one sequence, sum by sum."""
    n, k = len(tokens), len(model.scores)
    found = torch.zeros(n, k, dtype=torch.double)
    for t in range(n):
        for j in range(t + 1):
            weights = [math.exp(model.distances[j - i]) for i in range(j + 1)]
            score = sum(w * model.scores[tokens[t], tokens[i]] for i, w in enumerate(weights)) / sum(weights)
            found[t, tokens[j]] += score
    return found


def test_logits_are_those_of_the_definition():
    draws = torch.Generator().manual_seed(0)
    model = MinimalModel(
        distances=torch.randn(9, generator=draws, dtype=torch.double),
        scores=torch.randn(3, 3, generator=draws, dtype=torch.double),
    )
    tokens = torch.randint(3, (2, 9), generator=draws)
    expected = torch.stack([by_hand(model, row) for row in tokens.tolist()])
    torch.testing.assert_close(model.logits(tokens), expected)
    one_back = torch.full((9,), -math.inf, dtype=torch.double).index_fill(0, torch.tensor(1), 0.0)
    assert torch.equal(model.looking_back().distances, one_back)


def test_looking_back_with_equal_symbols_is_a_count_of_what_followed():
    batch = prompts(TASK, 0, 8)
    model = MinimalModel(distances=torch.zeros(11, dtype=torch.double), scores=torch.eye(3, dtype=torch.double))
    logits = model.looking_back().logits(batch.inputs)
    first = torch.nn.functional.one_hot(batch.inputs[:, :1], 3) * (batch.inputs == batch.inputs[:, :1])[..., None]
    counts = logits - first  # the first symbol has none before it, and attends to itself
    seen = counts.sum(-1, keepdim=True)
    torch.testing.assert_close((counts / seen)[seen[..., 0] > 0], frequencies(TASK, batch)[seen[..., 0] > 0])


def test_a_training_starts_at_zero_and_is_the_same_again():
    (model, course), (_, again) = (train_minimal(TASK, 3, n_steps=2 * EVERY) for _ in range(2))
    assert course.equals(again)
    assert course.step.values.tolist() == [0, EVERY, 2 * EVERY]
    assert float(course.kl_uniform[0]) == pytest.approx(0)
    assert float(course.previous[0]) == pytest.approx(1 / 11)
    assert (course.kl_bigram.diff("step") < 0).all()
    assert model.scores.diagonal().min() > 0


@pytest.mark.thorough
def test_the_faster_layer_1_is_first():
    found = measure_order(1001)
    assert found["ready_before"] > found["fast_ready_before"]
    assert found["looks_back"] > 5 * found["fast_looks_back"]
    assert measure_phases(1001)["in_turn"] == 1
