"""Claims about language models, asked of the packaged one."""

import pytest
import torch

import mnemoscope as ms
from mnemoscope.claims.claim import CLAIMS, GATE
from mnemoscope.systems.language_models import paths, prompts, reading

pytestmark = pytest.mark.lm


def test_attention_is_the_models_own_where_no_writer_is_cut(model):
    """Rotary positions, and keys that three heads share."""
    asked = prompts.repeated(model, n=2, seed=0)
    layer, head = heads = reading.by_score(model, "induction")[0]
    found = paths.attention_to_successor(model, asked, [heads], [("k", []), ("q", [])], asked)
    name = ms.Site(kind="pattern", layer=layer).hook
    _, cache = model.run_with_cache(asked.inputs, names_filter=name)
    n = prompts.LENGTH
    own = torch.stack([cache[name][:, head, n + i, i + 1] for i in range(1, n)]).mean(0)
    assert torch.allclose(found, own.double().expand(3, -1), atol=1e-4)
    assert own.mean() > 0.2


def test_a_claim_is_asked_of_it_per_question(model, tmp_path):
    claim = CLAIMS.get("G5")
    (ruling,) = ms.run_trials([claim], [], models=["smollm2"], sensitivity=False, store=tmp_path)
    assert ruling.evidence.models == ["smollm2"]
    assert ruling.verdict.n + ruling.verdict.n_failed == len(prompts.facts(model).told.pairs) >= claim.n_replicates
    assert ruling.verdict.n >= 16
    assert ruling.departures == ()
    assert GATE not in ruling.evidence.effects
