"""What earlier heads add to keys and queries, on small models of three architectures."""

import pytest
import torch

import mnemoscope as ms
from mnemoscope.core.batch import Batch
from mnemoscope.systems.language_models.paths import attention_to_successor
from tests.language_models import KINDS, save


@pytest.fixture(scope="module", params=sorted(KINDS))
def model(request, tmp_path_factory):
    return ms.language_model(save(request.param, tmp_path_factory.mktemp(request.param)))


@pytest.fixture(scope="module")
def batches(model):
    return [ms.analyses.repeated_tokens(model, n=20, length=6, first_token=1, seed=seed) for seed in (0, 1)]


def by_hand(model, batch: Batch, pattern: torch.Tensor) -> torch.Tensor:
    """Of repeated words b w1 … w6 w1 … w6: from the place of w_i, 6 + i, to that of w_(i+1) before, i + 1."""
    return torch.stack([pattern[:, 6 + i, i + 1] for i in range(1, 6)]).double().mean(0)


def test_without_writers_attention_is_the_models_own(model, batches):
    asked, reference = batches
    found = attention_to_successor(model, asked, [(1, 1)], [("k", []), ("q", [])], reference)
    _, cache = model.run_with_cache(asked.inputs)
    assert torch.allclose(found[0], by_hand(model, asked, cache["pattern", 1][:, 1]), atol=1e-6)
    assert torch.allclose(found[1:], found[0].expand(2, -1), atol=1e-6)


def test_without_positions_of_its_own_a_writer_that_is_constant_carries_nothing(model, batches):
    asked, _ = batches
    found = attention_to_successor(model, asked.select(slice(1)), [(1, 0)], [("k", [(0, 0)])], asked.select(slice(1)))
    assert torch.allclose(found[1], found[0], atol=1e-6)


@torch.no_grad()
def test_all_heads_of_the_first_layer_are_its_attention(model, batches):
    """Taken from the keys of layer 1: its input less attention of layer 0 plus the mean of that."""
    asked, reference = batches
    heads = [(0, head) for head in range(model.cfg.n_heads)]
    found = attention_to_successor(model, asked, [(1, 2 % model.cfg.n_heads)], [("k", heads)], reference)
    _, cache = model.run_with_cache(asked.inputs)
    _, other = model.run_with_cache(reference.inputs)
    stream = cache["resid_pre", 1] - cache["attn_out", 0] + other["attn_out", 0].mean(0)

    def same_queries(q, hook):
        return cache["q", 1]

    with model.hooks(fwd_hooks=[("blocks.1.attn.hook_q", same_queries)]):
        _, changed = model.run_with_cache(stream, start_at_layer=1, names_filter="blocks.1.attn.hook_pattern")
    expected = by_hand(model, asked, changed["pattern", 1][:, 2 % model.cfg.n_heads])
    assert torch.allclose(found[1], expected, atol=1e-5)
    assert (found[1] - found[0]).abs().max() > 1e-4


def test_readers_of_later_layers_see_no_change_of_earlier_ones(model, batches):
    asked, reference = batches
    both = attention_to_successor(model, asked, [(0, 0), (1, 0)], [("k", [(0, 1)])], reference)
    late, early = (attention_to_successor(model, asked, [r], [("k", [(0, 1)])], reference) for r in ((1, 0), (0, 0)))
    assert torch.allclose(early[1], early[0])
    assert torch.allclose(both, (late + early) / 2, atol=1e-6)
