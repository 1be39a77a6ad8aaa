"""A forward pass that computes only what is read, against the model itself."""

from functools import partial

import pytest
import torch

from mnemoscope.interventions import first_layer
from mnemoscope.interventions.direct import logits_directly, outputs_at, watch
from mnemoscope.interventions.patching.packed import packed
from tests.support import foreign_model, random_model, seeded, small_spec

BATCH = small_spec("v3").task.monitor(10, split="test", generator=seeded())
MODELS = {
    "one layer": random_model,
    "two layers": partial(random_model, n_layers=2),
    "attention only": partial(random_model, mlp=False, n_layers=2),
    "no normalisation": partial(random_model, normalization="none"),
}
POINTS = (
    "hook_resid_pre",
    "attn.hook_q",
    "attn.hook_k",
    "attn.hook_v",
    "attn.hook_attn_scores",
    "attn.hook_pattern",
    "attn.hook_z",
    "hook_attn_out",
    "hook_resid_mid",
    "hook_mlp_out",
    "hook_resid_post",
)


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
    names = [f"blocks.{layer}.{point}" for layer in range(model.cfg.n_layers) for point in POINTS]
    return [name for name in names if name in model.hook_dict and not (model.cfg.attn_only and "mlp" in name)]


@pytest.fixture(params=["looked up", "computed"])
def first_attention(request, monkeypatch):
    """Both ways of the first layer."""
    if request.param == "computed":
        monkeypatch.setattr(first_layer, "MAX_CELLS", 0)


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
            assert watch(model, BATCH.inputs, {point: watched[point]})
            assert list(seen) == [point]
            torch.testing.assert_close(seen[point], one[point], atol=1e-5, rtol=1e-5)
    assert not watch(model, BATCH.inputs, {"blocks.0.ln1.hook_scale": print})


@torch.no_grad()
def test_the_first_layer_is_looked_up_where_there_are_more_places_than_cells():
    model = random_model()
    layer = packed(model, (0,)).layers[0]
    n_cells = model.cfg.d_vocab * BATCH.inputs.shape[1]
    cells = first_layer.cells_of(model, layer, BATCH.inputs)
    assert cells is not None
    assert len(cells.stream) == n_cells <= first_layer.MAX_CELLS
    assert first_layer.cells_of(model, layer, BATCH.inputs[:2]) is None
    assert first_layer.cells_of(model.to(torch.bfloat16), layer, BATCH.inputs) is None


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
    for point in ("blocks.0.ln1.hook_scale", "hook_embed", "blocks.0.mlp.hook_post"):
        with model.hooks(fwd_hooks=[(point, changing)]):
            assert outputs_at(model, BATCH.inputs, where) is None
            assert torch.equal(logits_directly(model, BATCH.inputs, where), model(BATCH.inputs)[where])
    handle = model.blocks[0].mlp.register_forward_hook(lambda *passed: passed[-1] + 1)
    assert outputs_at(model, BATCH.inputs, where) is None
    handle.remove()
    assert outputs_at(model, BATCH.inputs, where) is not None
    for other in (foreign_model(attention_dir="bidirectional"), foreign_model(use_attn_result=True)):
        found = logits_directly(other, BATCH.inputs, where)
        torch.testing.assert_close(found, other(BATCH.inputs)[where], atol=1e-5, rtol=1e-5)
    assert outputs_at(foreign_model(attention_dir="bidirectional"), BATCH.inputs, where) is None


def test_gradients_reach_the_weights_through_the_model_itself():
    model, where = random_model(), last_position()
    assert outputs_at(model, BATCH.inputs, where) is None
    logits_directly(model, BATCH.inputs, where).sum().backward()
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
