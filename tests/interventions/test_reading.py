"""A forward pass that computes only what is read, against the model itself."""

from functools import partial

import pytest
import torch

from mnemoscope.engine import lookup
from mnemoscope.engine.architecture import read_transformer
from mnemoscope.engine.changes import IN_BLOCK, NO_CHANGES
from mnemoscope.engine.transformer import Transformer
from mnemoscope.interventions.reading import StartCache, logits_by_engine, observe_run, outputs_at
from tests.support import foreign_model, random_model, seeded, small_spec

BATCH = small_spec("v3").task.monitor(10, split="test", generator=seeded())
MODELS = {
    "one layer": random_model,
    "two layers": partial(random_model, n_layers=2),
    "attention only": partial(random_model, mlp=False, n_layers=2),
    "no normalisation": partial(random_model, normalization="none"),
    "linear attention": partial(random_model, softmax=False),
    "bidirectional": partial(foreign_model, attention_dir="bidirectional"),
    "results": partial(foreign_model, use_attn_result=True),
    "rotary": partial(foreign_model, positional_embedding_type="rotary", rotary_dim=2, rotary_adjacent_pairs=False),
    "parallel": partial(foreign_model, parallel_attn_mlp=True, normalization_type="LNPre"),
    "gated, grouped": partial(
        foreign_model, gated_mlp=True, n_key_value_heads=1, normalization_type="RMS", final_rms=True, act_fn="silu"
    ),
    "windows": partial(foreign_model, use_local_attn=True, window_size=3, attn_types=["global", "local"]),
    "soft caps": partial(foreign_model, attn_scores_soft_cap=2.0, output_logits_soft_cap=1.5),
}


def some_places():
    """Of another number in every row, none in the first."""
    where = torch.rand(BATCH.inputs.shape, generator=seeded(3)) < 0.4
    where[0] = False
    return where


def last_position():
    return torch.arange(BATCH.inputs.shape[1]).expand_as(BATCH.inputs) == BATCH.inputs.shape[1] - 1


def changing(activation, hook, *, seed=0):
    """Another number at every entry, where scores are finite."""
    noise = torch.randn(activation.shape, generator=seeded(seed))
    return activation + noise.where(activation.isfinite(), torch.zeros(()))


def points_of(model):
    """The hook points that are called; a model without MLPs has those around one all the same."""
    names = [f"blocks.{layer}.{point}" for layer in range(model.cfg.n_layers) for point in IN_BLOCK]
    return [name for name in names if name in model.hook_dict and not (model.cfg.attn_only and "mlp" in name)]


@pytest.fixture(params=["looked up", "computed"])
def first_attention(request, monkeypatch):
    """Both ways of the first layer."""
    if request.param == "computed":
        monkeypatch.setattr(lookup, "MAX_CELLS", 0)


@pytest.mark.parametrize("places", [some_places, last_position])
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_logits_are_those_of_the_model_with_a_hook_at_any_point(name, places, first_attention):
    model, where = MODELS[name](), places()
    clean = outputs_at(model, BATCH.inputs, where)
    assert clean is not None
    torch.testing.assert_close(clean, model(BATCH.inputs)[where], atol=1e-5, rtol=1e-5)
    for point in points_of(model):
        with model.hooks(fwd_hooks=[(point, changing)]):
            found = outputs_at(model, BATCH.inputs, where)
            expected = model(BATCH.inputs)[where]
        assert found is not None
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        assert not torch.allclose(found, clean, atol=1e-3), point


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_what_is_watched_is_what_the_model_has_there_as_hooks_leave_it(name, first_attention):
    model, seen = MODELS[name](), {}
    watched = {point: partial(seen.__setitem__, point) for point in points_of(model)}
    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_v", changing)]):
        expected, cache = model.run_with_cache(BATCH.inputs)
        logits = outputs_at(model, BATCH.inputs, last_position(), watched=watched)
    torch.testing.assert_close(logits, expected[:, -1], atol=1e-5, rtol=1e-5)
    assert set(seen) == set(watched)
    for point, activation in seen.items():
        torch.testing.assert_close(activation, cache[point], atol=1e-5, rtol=1e-5)
    one = {point: activation.clone() for point, activation in seen.items()}
    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_v", changing)]):
        for point in watched:
            seen.clear()
            assert observe_run(model, BATCH.inputs, {point: watched[point]})
            assert list(seen) == [point]
            torch.testing.assert_close(seen[point], one[point], atol=1e-5, rtol=1e-5)
    assert not observe_run(model, BATCH.inputs, {"blocks.0.ln1.hook_scale": print})


@torch.no_grad()
def test_the_first_layer_is_looked_up_where_there_are_more_places_than_cells():
    model = random_model()
    weights = read_transformer(model)
    assert not isinstance(weights, str)
    assert model.cfg.d_vocab * BATCH.inputs.shape[1] <= lookup.MAX_CELLS
    looked_up = lookup.stream_after_attention(weights.first_layer, BATCH.inputs, None, NO_CHANGES)
    assert looked_up is not None
    _, cache = model.run_with_cache(BATCH.inputs)
    torch.testing.assert_close(looked_up, cache["resid_mid", 0], atol=1e-5, rtol=1e-5)
    assert lookup.stream_after_attention(weights.first_layer, BATCH.inputs[:2], None, NO_CHANGES) is None


@torch.no_grad()
def test_a_query_that_sees_no_key_takes_nothing(first_attention):
    model, where = random_model(), last_position()

    def blind(scores, hook):
        scores = scores.clone()
        scores[:, 0, -1] = -torch.inf
        return scores

    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_attn_scores", blind)]):
        found, expected = outputs_at(model, BATCH.inputs, where), model(BATCH.inputs)[where]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_model_runs_itself_where_a_hook_or_a_model_is_not_reproduced():
    where, model = last_position(), random_model()
    for point in ("blocks.0.ln1.hook_scale", "unembed.hook_in"):
        with model.hooks(fwd_hooks=[(point, changing)]):
            assert outputs_at(model, BATCH.inputs, where) is None
            assert torch.equal(logits_by_engine(model, BATCH.inputs, where), model(BATCH.inputs)[where])
    handle = model.blocks[0].mlp.register_forward_hook(lambda *passed: passed[-1] + 1)
    assert outputs_at(model, BATCH.inputs, where) is None
    handle.remove()
    assert outputs_at(model, BATCH.inputs, where) is not None
    other = foreign_model(positional_embedding_type="alibi")
    torch.testing.assert_close(logits_by_engine(other, BATCH.inputs, where), other(BATCH.inputs)[where])
    assert outputs_at(other, BATCH.inputs, where) is None


def test_gradients_reach_the_weights_through_the_model_itself():
    model, where = random_model(), last_position()
    assert outputs_at(model, BATCH.inputs, where) is None
    logits_by_engine(model, BATCH.inputs, where).sum().backward()
    assert model.W_E.grad is not None
    assert model.W_E.grad.abs().sum() > 0


@torch.no_grad()
def test_changed_weights_are_seen():
    model, where = random_model(), last_position()
    before = outputs_at(model, BATCH.inputs, where)
    model.blocks[0].attn.W_O *= 2
    found = outputs_at(model, BATCH.inputs, where)
    assert before is not None
    assert found is not None
    assert not torch.allclose(found, before, atol=1e-3)
    torch.testing.assert_close(found, model(BATCH.inputs)[where], atol=1e-5, rtol=1e-5)


LATER = ("blocks.1.attn.hook_z", "blocks.1.hook_resid_pre", "blocks.1.hook_mlp_out", "blocks.2.attn.hook_pattern")


@torch.no_grad()
def test_runs_are_resumed_before_the_first_change_and_give_the_same_bits():
    model, where, starts, inputs = random_model(n_layers=3), some_places(), StartCache(), BATCH.inputs
    for point in (*LATER, *LATER[::-1]):
        with model.hooks(fwd_hooks=[(point, changing)]):
            resumed, whole = (logits_by_engine(model, inputs, where, starts=each) for each in (starts, None))
        assert torch.equal(resumed, whole), point
    other = BATCH.inputs.flip(0)
    with model.hooks(fwd_hooks=[(LATER[0], changing)]):
        found = logits_by_engine(model, other, where, starts=starts)
        assert torch.equal(found, logits_by_engine(model, other, where))


@torch.no_grad()
def test_what_is_resumed_runs_no_earlier_block(monkeypatch):
    model, where, ran = random_model(n_layers=3), some_places(), []
    read_transformer(model)  # tried once, which runs it
    after = Transformer.after_block
    monkeypatch.setattr(Transformer, "after_block", lambda w, index, *more: ran.append(index) or after(w, index, *more))
    starts, last = StartCache(), "blocks.2.hook_mlp_out"
    for hooks, blocks in (((LATER[0], last), [0, 1, 2]), ((LATER[0],), [1, 2]), ((last,), [1, 2]), ((last,), [2])):
        ran.clear()
        with model.hooks(fwd_hooks=[(point, changing) for point in hooks]):
            logits_by_engine(model, BATCH.inputs, where, starts=starts)
        assert ran == blocks
    ran.clear()
    with model.hooks(fwd_hooks=[(last, changing)]):
        logits_by_engine(model, BATCH.inputs, where, starts=StartCache(max_bytes=100))
    assert ran == [0, 1, 2]
