"""Trials without hooks give what one hooked forward pass a trial gives."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mnemoscope.analyses.attention_replacement import paths
from mnemoscope.analyses.attention_replacement import set_patterns as module
from mnemoscope.analyses.attention_replacement.losses import loss_meter
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.patterns import Mechanism, earlier_same, identity, previous, uniform, with_fallback
from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.building import build
from mnemoscope.systems.retrieval.tasks import Retrieval
from tests.support import perturbed, random_model, seeded

N_POS = 9
WHOLE = with_fallback(previous(), identity())
PARTLY = earlier_same()
"""Says nothing about tokens, or latents, that are new."""
ASSIGNED = {(0, 0): WHOLE, (1, 0): uniform(), (2, 0): with_fallback(previous(2), identity())}


def tokens(n=10):
    inputs = torch.randint(6, (n, N_POS + 1), generator=seeded())
    scored = torch.arange(N_POS).expand(n, -1) % 3 == 2
    scored[: n // 2, 2] = False
    return Batch(inputs=inputs[:, :-1], targets=inputs[:, 1:], scored=scored)


def vectors(**changes):
    task = Retrieval(n_chains=2, n_steps=2, d_symbol=2)
    spec = ModelSpec(**{"d_model": 8, "n_heads": 2, "n_layers": 3, "act_fn": "gelu", "positions": False, **changes})
    model = build(spec, d_vocab=task.d_vocab, n_ctx=task.n_ctx, d_output=task.d_output, seed=0)
    return perturbed(model, spec=spec), task.sample(10, split="test", generator=seeded())


def remove_paths(model, batch, assigned, *, skills=None, **arguments):
    return paths.remove_paths(loss_meter(model, batch, skills), assigned, **arguments)


def is_fast(model, batch):
    return isinstance(module.prepare_trials(loss_meter(model, batch, None), {}), module.EngineTrials)


def both(monkeypatch, model, batch, assigned, **arguments):
    """The table of the fast way, after a comparison with that of the hooked way."""
    assert is_fast(model, batch)
    fast = remove_paths(model, batch, assigned, **arguments)
    with monkeypatch.context() as patched:
        patched.setattr(module, "resumable_transformer", lambda *_: "asked for")
        assert not is_fast(model, batch)
        slow = remove_paths(model, batch, assigned, **arguments)
    same(fast, slow)
    return fast


def same(one, other):
    assert one.attrs == other.attrs
    assert set(one.variables) == set(other.variables)
    for name in one.variables:
        if one[name].dtype.kind == "f":
            np.testing.assert_allclose(one[name], other[name], atol=1e-5, err_msg=str(name))
        else:
            assert one[name].equals(other[name]), name


@pytest.mark.parametrize("by", ["mechanism", "query"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"normalization": "LN"}, {"mlp": True, "act_fn": "gelu"}, {"n_heads": 1, "normalization": "LN", "mlp": True}],
    ids=str,
)
def test_tokens(monkeypatch, changes, by):
    model = random_model(n_layers=3, **changes)
    skills = {"late": tokens().scored & (torch.arange(N_POS) > 4)}
    assert both(monkeypatch, model, tokens(), ASSIGNED, by=by, skills=skills).rise.any()


@pytest.mark.full
@pytest.mark.parametrize("by", ["mechanism", "query"])
@pytest.mark.parametrize("changes", [{}, {"normalization": "LN", "mlp": True}, {"n_heads": 1}], ids=str)
def test_vectors(monkeypatch, changes, by):
    model, batch = vectors(**changes)
    assert both(monkeypatch, model, batch, ASSIGNED, by=by).rise.any()


@pytest.mark.thorough
def test_all_heads_of_a_layer_and_only_some(monkeypatch):
    every = {(layer, head): uniform() if head else WHOLE for layer in range(3) for head in range(2)}
    model = random_model(n_layers=3)
    table = both(monkeypatch, model, tokens(), every, by="query")
    assert set(zip(table.layer.values.tolist(), table["head"].values.tolist(), strict=True)) == set(every)
    only = both(monkeypatch, model, tokens(), {(1, 1): WHOLE}, by="query", fallbacks=[identity(), uniform()])
    assert only.layer.values.tolist() == only["head"].values.tolist() == [1] * only.sizes["path"]


@pytest.mark.parametrize("n_heads", [1, 2])
@pytest.mark.thorough
def test_rows_about_which_nothing_is_said_stay_learned(monkeypatch, n_heads):
    assigned = {(0, 0): WHOLE, (1, 0): PARTLY, (2, n_heads - 1): PARTLY}
    model = random_model(n_layers=3, n_heads=n_heads, mlp=True, normalization="LN")
    table = both(monkeypatch, model, tokens(), assigned)
    assert set(table.layer.values.tolist()) == {0, 1, 2}
    both(monkeypatch, model, tokens(), assigned, by="query")


@pytest.mark.thorough
def test_small_chunks_give_the_same(monkeypatch):
    model, batch = random_model(n_layers=3, mlp=True), tokens()
    whole = remove_paths(model, batch, ASSIGNED, by="query")
    monkeypatch.setattr(module, "CACHE_BYTES", 2**14)
    fast = module.prepare_trials(loss_meter(model, batch, None), ASSIGNED)
    assert len(fast._parts) > 1
    same(remove_paths(model, batch, ASSIGNED, by="query"), whole)


def test_a_model_with_hooks_keeps_the_hooked_way():
    model, batch = random_model(n_layers=3), tokens()
    plain = remove_paths(model, batch, ASSIGNED)
    model.add_hook("blocks.1.hook_resid_pre", lambda tensor, *, hook: tensor * 1.0)
    assert not is_fast(model, batch)
    same(remove_paths(model, batch, ASSIGNED), plain)
    model.reset_hooks()
    model.add_hook("blocks.1.hook_resid_pre", lambda tensor, *, hook: tensor * 0.5)
    assert not np.allclose(remove_paths(model, batch, ASSIGNED).loss, plain.loss)


def test_what_would_be_too_much_to_keep_is_not_kept(monkeypatch):
    model, batch = random_model(n_layers=3), tokens()
    monkeypatch.setattr(module, "MAX_BYTES", 1)
    assert not is_fast(model, batch)


@pytest.mark.thorough
def test_sequences_without_a_scored_position(monkeypatch):
    batch = tokens()
    scored = batch.scored.clone()
    scored[3] = False
    assert both(monkeypatch, random_model(n_layers=3), replace(batch, scored=scored), ASSIGNED, by="query").rise.any()


@pytest.mark.thorough
def test_a_fallback_that_says_nothing_about_some_queries(monkeypatch):
    fallbacks = [PARTLY, identity()]
    table = both(monkeypatch, random_model(n_layers=3), tokens(), ASSIGNED, by="query", fallbacks=fallbacks)
    assert PARTLY.name in table.fallback.values


def test_a_head_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match="layer"):
        remove_paths(random_model(n_layers=1), tokens(), {(1, 0): uniform()})


@pytest.mark.parametrize("read", [tokens, vectors], ids=["tokens", "vectors"])
def test_a_head_whose_attention_was_learned_is_set_alone(monkeypatch, read):
    """As the search for mechanisms does, with whole patterns; one that leaves rows out goes the hooked way."""
    model, batch = (random_model(n_layers=3, normalization="LN"), tokens()) if read is tokens else vectors()
    at = loss_meter(model, batch, None)
    patterns = [mechanism.pattern(batch) for mechanism in (WHOLE, uniform(), identity())]
    run = module.prepare_trials(at, {})
    assert isinstance(run, module.EngineTrials)
    for head in ((0, 1), (1, 0), (2, 1)):
        clean, fast = run({}, head, patterns)
        torch.testing.assert_close(clean.loss, at.clean.loss, atol=1e-5, rtol=0)
        for pattern, one in zip(patterns, fast, strict=True):
            slow = at.with_patterns({head: Mechanism(name="set", pattern=lambda _, p=pattern: p)})
            torch.testing.assert_close(one.loss, slow.loss, atol=1e-5, rtol=0)
    partly = PARTLY.pattern(tokens()) if read is tokens else patterns[0].where(batch.scored[..., None], torch.nan)
    monkeypatch.setattr(module, "continued", None)
    _, (left_out,) = run({}, (1, 1), [partly])
    slow = at.with_patterns({(1, 1): Mechanism(name="set", pattern=lambda _: partly)})
    torch.testing.assert_close(left_out.loss, slow.loss, atol=1e-5, rtol=0)
