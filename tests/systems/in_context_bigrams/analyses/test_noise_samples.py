"""Samples needed to learn the noise token in one gradient step."""

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from mnemoscope.core.errors import InputError
from mnemoscope.core.seeding import generator
from mnemoscope.systems.in_context_bigrams.analyses.noise_samples import (
    PARTS,
    TRIGGER,
    contexts,
    exponent,
    logits,
    samples_needed,
    scaling,
)


def drawn(n_samples, *, length=6, noise=0.5, n_tokens=7, n_repeats=1):
    stream = generator(100, "test")
    return contexts(n_samples, n_tokens, length=length, noise=noise, stream=stream, n_repeats=n_repeats)


@pytest.mark.parametrize("part", PARTS)
def test_the_step_is_the_gradient(part):
    tokens, targets = drawn(13, n_repeats=2)
    found = logits(tokens, targets, 7, part)
    held = one_hot(tokens, 8).double()
    inputs = held.mean(2) if part == "attention" else held[:, :, -1]
    for row in range(2):
        weight = torch.zeros(8, 8, dtype=torch.double, requires_grad=True)
        cross_entropy(inputs[row] @ weight.T, targets[row]).backward()
        assert weight.grad is not None
        torch.testing.assert_close(found[row].double(), -weight.grad, atol=1e-6, rtol=0)


def test_by_hand():
    tokens, targets = torch.tensor([[[0, 2, 1, 0], [1, 0, 3, 0]]]), torch.tensor([[2, 3]])
    found = logits(tokens, targets, 3, "attention")[0]  # token 3 is noise
    mean = torch.tensor([1 / 2, 1 / 4, 1 / 8, 1 / 8]) / 4
    assert found[2].tolist() == pytest.approx((torch.tensor([2, 1, 1, 0]) / 8 - mean).tolist())
    assert found[3].tolist() == pytest.approx((torch.tensor([2, 1, 0, 1]) / 8 - mean).tolist())
    assert logits(tokens, targets, 3, "feed_forward")[0, :, TRIGGER].tolist() == pytest.approx(
        [-0.25, -0.25, 0.25, 0.25]
    )


def test_contexts_are_as_described():
    tokens, targets = drawn(4000, noise=0.3)
    tokens, targets = tokens[0], targets[0]
    assert (tokens[:, -1] == TRIGGER).all()
    assert ((tokens == TRIGGER).sum(1) == 2).all()
    first = (tokens == TRIGGER).int().argmax(1)
    seen = tokens.gather(1, (first + 1)[:, None])[:, 0]
    assert ((tokens == 7).sum(1) == (seen == 7)).all()
    assert first.unique().tolist() == [0, 1, 2, 3]
    for what in (seen, targets):
        assert float((what == 7).double().mean()) == pytest.approx(0.3, abs=0.03)  # four standard errors
    both = (seen != 7) & (targets != 7)
    assert (seen == targets)[both].all()
    assert float(both.double().mean()) == pytest.approx(0.49, abs=0.032)
    assert targets[both].unique().tolist() == [1, 2, 3, 4, 5, 6]


def test_with_noise_alone_one_sample_teaches_the_trigger_and_its_own_tokens():
    assert samples_needed(16, "feed_forward", 100, noise=1.0) == 1
    # each of at least 15 of 16 tokens must have been in a context, which has three places for them
    assert samples_needed(16, "attention", 100, noise=1.0, length=6, n_repeats=8) > 5


def test_without_noise_it_is_never_learned():
    with pytest.raises(InputError, match=r"noise 0.0 is not learned by feed_forward from 64 samples"):
        samples_needed(8, "feed_forward", 100, noise=0.0, limit=64)


def test_attention_needs_more_and_more():
    found = scaling(100, sizes=(8, 64)).samples
    alone, averaged = (found.sel(part=part).values for part in PARTS)
    assert (averaged > 2 * alone).all()
    assert averaged[1] > 1.5 * averaged[0]
    assert alone[1] <= 1.5 * alone[0]


def test_another_draw_and_the_same():
    first = scaling(100, sizes=(8, 16))
    assert first.identical(scaling(100, sizes=(8, 16)))
    assert any(not first.samples.equals(scaling(draw, sizes=(8, 16)).samples) for draw in (101, 102))


def test_exponents_by_hand():
    assert exponent((8, 16, 64), (3, 6, 24)) == pytest.approx(1)
    assert exponent((8, 32), (5, 10)) == pytest.approx(0.5)
    assert exponent((8, 32), (5, 5)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exponent((8, 8), (1, 2)), "two sizes"),
        (lambda: exponent((8, 16), (0, 2)), "one positive number"),
        (lambda: samples_needed(2, "attention", 100), "n_tokens must be at least 3"),
        (lambda: samples_needed(8, "attention", 100, length=2), "length must be at least 3"),
        (lambda: samples_needed(8, "attention", 100, noise=1.5), "noise must be from 0 to 1"),
        (lambda: samples_needed(8, "attention", 100, limit=0), "limit must be at least 1"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(InputError, match=message):
        call()
