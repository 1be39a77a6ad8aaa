"""Models set by hand predict what they were built to, and nothing else does."""

import pytest
import torch

from mnemoscope.systems.markov.analyses.attention import attention_shares, with_ideal_patterns
from mnemoscope.systems.markov.analyses.distances import divergences, frequencies, linear_readout, prompts
from mnemoscope.systems.markov.constructed import bigram_circuit, unigram_circuit
from mnemoscope.systems.markov.tasks import MarkovChains

TASK = MarkovChains(length=40)
BATCH = prompts(TASK, 0, 64)


@torch.no_grad()
def test_the_bigram_circuit_is_a_linear_readout_of_what_followed():
    model = bigram_circuit(TASK, gain=2.5)
    expected = 2.5 * frequencies(TASK, BATCH)
    found = model(BATCH.inputs).double()
    # The first position counts as its own successor; where it did not stand again that makes no difference.
    first = BATCH.inputs[:, :1]
    seen = BATCH.latents["occurrence"] > 0
    sure = seen & (BATCH.inputs != first)
    torch.testing.assert_close(found[sure], expected[sure], atol=1e-5, rtol=1e-5)
    assert sure.sum() > 1000


@torch.no_grad()
def test_the_unigram_circuit_counts_all_symbols():
    found = unigram_circuit(TASK, gain=3.0)(BATCH.inputs)
    counts = torch.nn.functional.one_hot(BATCH.inputs, 3).cumsum(1)
    torch.testing.assert_close(found, 3 * counts / torch.arange(1, 40)[:, None], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("k", [2, 3, 8])
def test_each_is_nearest_to_its_predictor(k):
    task = MarkovChains(n_symbols=k)
    batch = prompts(task, 0, 64)
    bigram, unigram = (divergences(make(task), task, batch) for make in (bigram_circuit, unigram_circuit))
    assert bigram.nearest.item() == "bigram"
    assert unigram.nearest.item() == ("uniform" if k == 8 else "unigram")  # of many symbols few stand often
    assert bigram.closed > 0.6
    assert unigram.closed < 0.15
    assert linear_readout(bigram_circuit(task), task, batch).gain == 2.0
    assert linear_readout(bigram_circuit(task), task, batch).kl < 0.6 * bigram.kl.sel(predictor="bigram")


def test_attention_and_ideal_patterns_tell_which_layer_is_wrong():
    right, wrong = bigram_circuit(TASK), bigram_circuit(TASK, looks_back=2)
    shares = attention_shares(right, BATCH)
    assert shares.previous.item() == pytest.approx(1)
    assert shares.successors.item() > 0.9 > 2 * shares.chance.item()
    assert attention_shares(wrong, BATCH).previous.item() < 0.05
    own = float(divergences(right, TASK, BATCH).closed)
    for model in (right, wrong):
        assert float(with_ideal_patterns(model, TASK, BATCH).sel(ideal="previous")) == pytest.approx(own, abs=1e-4)
    assert float(divergences(wrong, TASK, BATCH).closed) < 0
