import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.core.specification import ModelSpec
from mnemoscope.models import constructed
from mnemoscope.models.building import build
from mnemoscope.systems.in_context_bigrams.analyses import memories
from mnemoscope.systems.in_context_bigrams.constructed import MEMORIES, induction_memories
from tests.support import global_generators_untouched, seeded

N_TOKENS, N_CTX, WIDTH = 10, 12, 512


@pytest.fixture(scope="module")
def model():
    return induction_memories(N_TOKENS, N_CTX, d_model=WIDTH)


def recalled(model):
    return memories.induction_memories(model, n_draws=2).recall.to_numpy().tolist()


def test_matrices_are_sums_of_outer_products(model):
    first, second = (block.attn for block in model.blocks)
    token, position, u = model.W_E, model.W_pos, model.W_U.T
    sums = {
        first.W_K: [torch.outer(position[t - 1], position[t]) for t in range(1, N_CTX)],
        second.W_K: [torch.outer(token[i] @ first.W_V[0] @ first.W_O[0], token[i]) for i in range(N_TOKENS)],
        second.W_O: [torch.outer(token[i] @ second.W_V[0], u[i]) for i in range(N_TOKENS)],
    }
    for weight, products in sums.items():
        expected = torch.stack(products).sum(0)
        factor = weight[0].norm() / expected.norm()
        torch.testing.assert_close(weight[0], factor * expected, rtol=1e-4, atol=1e-6)
    assert torch.equal(model.W_Q, torch.eye(WIDTH).expand(2, 1, -1, -1))
    assert recalled(model) == [1, 1, 1, 1]


@torch.no_grad()
def test_it_continues_what_was_seen_before(model):
    batch = constructed.induction_batch(60, n_tokens=N_TOKENS, n_ctx=N_CTX, generator=seeded())
    logits, cache = model.run_with_cache(batch.inputs)
    seen = batch.latents["attended"] > 1  # position 0 attends to itself, so its token has two successors
    assert (logits.argmax(-1) == batch.targets)[seen].double().mean() > 0.99
    pattern = cache["blocks.1.attn.hook_pattern"][:, 0]
    assert pattern.gather(-1, batch.latents["attended"].clamp(min=0)[..., None])[..., 0][seen].mean() > 0.99
    assert cache["blocks.0.attn.hook_pattern"][:, 0].diagonal(-1, 1, 2).min() > 0.99


def test_memories_that_are_left_out_stay_random():
    spec = ModelSpec(d_model=64, n_heads=1, n_layers=2, mlp=False, normalization="none", initialisation="memories")
    fresh = build(spec, d_vocab=N_TOKENS, n_ctx=N_CTX, seed=3)
    set_by = dict(zip(MEMORIES, ("blocks.0.attn.W_K", "blocks.1.attn.W_K", "blocks.1.attn.W_O"), strict=True))
    for memory, name in set_by.items():
        model = induction_memories(N_TOKENS, N_CTX, d_model=64, memories=[memory], seed=3)
        changed = {n for n, value in model.named_parameters() if not torch.equal(value, fresh.get_parameter(n))}
        assert changed == {name}


def test_only_chosen_tokens_are_matched():
    model = induction_memories(40, N_CTX, tokens=[3, 7, 9])
    assert float(memories.remapped_copy(model, tokens=[3, 7, 9], n_draws=2).recall) == 1
    assert float(memories.remapped_copy(model, n_draws=2).recall) < 0.5


def test_an_unknown_memory_is_refused_and_no_global_generator_is_used():
    with pytest.raises(InputError, match="a memory must be one of: previous token, remapped copy, copied token"):
        induction_memories(3, 4, memories=["copy"])
    with global_generators_untouched():
        one, two = (induction_memories(3, 4, d_model=8, seed=seed) for seed in (0, 1))
    assert (one.W_E != two.W_E).any()
