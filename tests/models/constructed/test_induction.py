import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.models import constructed
from tests.support import global_generators_untouched, seeded


@torch.no_grad()
def at_target(model, batch):
    """Probability of the target at every scored position."""
    probs = model(batch.inputs).softmax(-1)
    return probs.gather(-1, batch.targets[..., None])[..., 0][batch.scored]


def test_induction_continues_what_was_seen_once():
    tokens = torch.randint(12, (300, 20), generator=seeded())
    earlier = (tokens[:, :, None] == tokens[:, None]) & torch.ones(20, 20).tril(-1).bool()
    once = earlier.sum(-1) == 1
    after = (earlier.int().argmax(-1) + 1).clamp(max=19)
    model = constructed.induction(12, 20)
    logits, cache = model.run_with_cache(tokens)
    assert logits.softmax(-1).gather(-1, tokens.gather(1, after)[..., None])[..., 0][once].min() > 0.99
    pattern = cache["blocks.1.attn.hook_pattern"][:, 0]
    assert pattern.gather(-1, after[..., None])[..., 0][once].min() > 0.99
    never = (earlier.sum(-1) == 0) & (torch.arange(20) > 0)
    alike = torch.where(torch.ones(20, 20).tril().bool() & (torch.arange(20) > 0), 1 / torch.arange(20)[:, None], 0.0)
    torch.testing.assert_close(pattern[never], alike.expand(300, -1, -1)[never])
    torch.testing.assert_close(cache["blocks.0.attn.hook_pattern"][0, 0, 1:, :-1], torch.eye(19))


def test_induction_composes_by_keys():
    model = constructed.induction(10, 20, noise=0.02)
    batch = constructed.induction_batch(50, n_tokens=10, n_ctx=20, generator=seeded())
    assert at_target(model, batch).min() > 0.99
    scores = torch.stack([model.all_composition_scores(mode)[0, :, 1] for mode in "KQV"])
    largest, second = scores.flatten().topk(2)[0]
    assert scores[0, 0, 0] == largest > 1.5 * second
    exact = constructed.induction(10, 20).all_composition_scores("K")[0, 0, 1, 0]
    assert float(exact.detach()) == pytest.approx(10**-0.5, abs=1e-4)  # two identities on the ten tokens
    assert not constructed.induction(10, 20).W_O[:, 1].any()


def test_induction_batches_show_distinct_tokens_twice():
    batch = constructed.induction_batch(20, n_tokens=9, n_ctx=13, generator=seeded())
    assert batch.inputs.shape == (20, 12)
    for tokens in batch.inputs.tolist():
        assert tokens[:6] == tokens[6:]
        assert len(set(tokens)) == 6
    attended, scored = batch.latents["attended"], batch.scored
    torch.testing.assert_close(batch.inputs.gather(1, attended.clamp(min=0))[scored], batch.targets[scored])
    assert scored.sum(1).eq(6).all()
    with pytest.raises(InputError, match="n_tokens must be at least 6; got 5"):
        constructed.induction_batch(1, n_tokens=5, n_ctx=12, generator=seeded())


def test_noise_leaves_the_global_generators_alone():
    with global_generators_untouched():
        one, two = (constructed.induction(5, 6, noise=0.1, seed=seed) for seed in (0, 1))
    assert (one.W_Q != two.W_Q).any()
