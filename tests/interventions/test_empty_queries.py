"""A query without any key attends to nothing on a bridge too, and never to what comes later."""

import copy

import pytest
import torch
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

import mnemoscope as ms
from tests.language_models import transformer

CLASSES = {"gpt2": "GPT2LMHeadModel", "pythia": "GPTNeoXForCausalLM", "llama": "LlamaForCausalLM"}
SITES = {
    "a head": ms.Site(kind="scores", layer=0, head=1),
    "a query of all heads": ms.Site(kind="scores", layer=1, pos=3),
    "the only key of the first query": ms.Site(kind="scores", layer=1, head=1, pos=0, key=0),
}


@pytest.fixture(scope="module", params=list(CLASSES))
def bridge(request):
    theirs, name = copy.deepcopy(transformer(request.param)), CLASSES[request.param]
    theirs.config._attn_implementation, theirs.config.architectures = "eager", [name]
    return build_bridge_from_module(theirs, name, hf_config=theirs.config).eval()


@pytest.mark.parametrize("site", SITES.values(), ids=list(SITES))
def test_all_keys_knocked_out_is_z_set_to_zero(bridge, site):
    tokens = torch.arange(5, 17).view(2, 6)
    batch = ms.Batch(inputs=tokens, targets=tokens, scored=torch.ones_like(tokens, dtype=torch.bool))
    silent = ms.Zero(site=ms.Site(kind="z", layer=site.layer, head=site.head, pos=site.pos))
    given = ms.run_with(bridge, batch, [ms.Knockout(site=site)])
    assert torch.equal(given, ms.run_with(bridge, batch, [silent]))
    assert (given != bridge(tokens)).any()


def test_nothing_later_is_attended_to(bridge):
    """A bridge hides later keys by a number that is the largest once the others are minus infinity."""
    tokens = torch.arange(5, 17).view(2, 6)
    batch = ms.Batch(inputs=tokens, targets=tokens, scored=torch.ones_like(tokens, dtype=torch.bool))
    changed = tokens.clone()
    changed[:, 1:] = 20
    other = ms.Batch(inputs=changed, targets=changed, scored=batch.scored)
    first = ms.Knockout(site=SITES["the only key of the first query"])
    one, two = (ms.run_with(bridge, each, [first])[:, 0] for each in (batch, other))
    torch.testing.assert_close(one, two, atol=1e-6, rtol=0)
