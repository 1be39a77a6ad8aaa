import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses import neurons as module
from mnemoscope.analyses.neurons import neuron_keys, neuron_values
from mnemoscope.core.errors import InputError
from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.building import build
from tests.support import foreign_model, random_model, reads_back, seeded

NORMALISATIONS = ["none", "LN"]


def tokens_of(model, n=7):
    return torch.randint(0, model.cfg.d_vocab, (n, min(9, model.cfg.n_ctx)), generator=seeded())


def read(model, keys: xr.Dataset, inputs, cache) -> torch.Tensor:
    """The pre-activation as keys, patterns and scales say it is, `batch pos neuron`."""
    key = {name: torch.from_numpy(keys[name].values) for name in keys}
    n_pos = inputs.shape[1]
    ones = torch.ones(*inputs.shape, 1, dtype=torch.double)
    layer = keys.attrs["layer"]
    with_norm = model.cfg.normalization_type is not None
    scale1, scale2 = (cache[f"blocks.{layer}.ln{n}.hook_scale"].double() if with_norm else ones for n in (1, 2))
    pattern = cache[f"blocks.{layer}.attn.hook_pattern"].double()
    source, own = key["key_head_token"][:, :, inputs], key["key_token"].T[inputs] + key["key_bias"]
    if "key_pos" in key:
        source, own = source + key["key_head_pos"][:, :, None, :n_pos], own + key["key_pos"].T[:n_pos]
    heads = torch.einsum("bhqk,nhbk->bqn", pattern, source / scale1.squeeze(-1))
    return (own + heads) / scale2 + key["bias"]


@pytest.mark.parametrize("kind", [None, "LN", "LNPre", "RMS", "RMSPre"])
def test_in_the_first_layer_the_keys_make_up_the_pre_activation(kind):
    model = foreign_model(normalization_type=kind, n_layers=1, act_fn="relu", dtype="float64")
    inputs = tokens_of(model)
    _, cache = model.run_with_cache(inputs)
    torch.testing.assert_close(read(model, neuron_keys(model), inputs, cache), cache["blocks.0.mlp.hook_pre"])


def test_positions_that_are_not_added_are_no_part_of_a_key():
    model = foreign_model(positional_embedding_type="rotary", rotary_dim=2, d_head=4, n_layers=1, dtype="float64")
    inputs = tokens_of(model)
    keys = neuron_keys(model)
    assert sorted(keys) == ["bias", "key_bias", "key_head_token", "key_token"]
    _, cache = model.run_with_cache(inputs)
    torch.testing.assert_close(read(model, keys, inputs, cache), cache["blocks.0.mlp.hook_pre"])


@pytest.mark.parametrize("normalization", NORMALISATIONS)
def test_the_packages_models_are_read_exactly(normalization):
    model = random_model(normalization=normalization)
    inputs = tokens_of(model)
    _, cache = model.run_with_cache(inputs)
    expected = cache["blocks.0.mlp.hook_pre"].double()
    torch.testing.assert_close(read(model, neuron_keys(model), inputs, cache), expected, atol=1e-5, rtol=1e-5)


def test_in_a_deeper_layer_only_what_earlier_layers_write_is_missing():
    model = random_model(n_layers=2, normalization="none", dtype="float64")
    inputs = tokens_of(model)
    keys = neuron_keys(model, layer=1)
    assert (keys.attrs["exact"], keys.attrs["missing"]) == (0, "what earlier layers write")
    _, cache = model.run_with_cache(inputs)
    assert not torch.allclose(read(model, keys, inputs, cache), cache["blocks.1.mlp.hook_pre"])
    with torch.no_grad():
        for name in ("attn.W_O", "attn.b_O", "mlp.W_out", "mlp.b_out"):
            model.get_parameter(f"blocks.0.{name}").zero_()
    _, cache = model.run_with_cache(inputs)
    torch.testing.assert_close(read(model, keys, inputs, cache), cache["blocks.1.mlp.hook_pre"])


def test_keys_say_what_was_left_out():
    attrs = {norm: neuron_keys(random_model(normalization=norm)).attrs for norm in NORMALISATIONS}
    assert [attrs[norm]["exact"] for norm in NORMALISATIONS] == [1, 0]
    assert attrs["none"]["weights"] == "unprocessed"
    assert attrs["LN"]["weights"] == "LayerNorm folded; the normalisations' scale left out"


@pytest.mark.parametrize("normalization", NORMALISATIONS)
def test_a_value_is_what_the_logits_gain_at_a_frozen_scale(normalization):
    model = random_model(normalization=normalization, dtype="float64")
    inputs = tokens_of(model)
    _, cache = model.run_with_cache(inputs)
    frozen = [] if normalization == "none" else [("ln_final.hook_scale", lambda x, hook: cache["ln_final.hook_scale"])]

    def more(post, hook):
        post = post.clone()
        post[:, :, 3] += 1
        return post

    gained = model.run_with_hooks(inputs, fwd_hooks=[*frozen, ("blocks.0.mlp.hook_post", more)]) - model(inputs)
    scale = 1 if normalization == "none" else cache["ln_final.hook_scale"]
    centred = (gained - gained.mean(-1, keepdim=True)) * scale
    value = torch.from_numpy(neuron_values(model).value.sel(neuron=3).values)
    torch.testing.assert_close(centred, value.expand_as(centred))


def test_promoted_and_suppressed_tokens_by_hand():
    model = random_model(d_model=6, normalization="none")
    with torch.no_grad():
        model.blocks[0].mlp.W_out.zero_()
        model.blocks[0].mlp.W_out[1] = torch.tensor([5.0, 0, 0, 1, -2, -4])
        model.unembed.W_U.copy_(torch.eye(6))
    values = neuron_values(model, n_top=2)
    assert values.value.sel(neuron=1).values.tolist() == [5, 0, 0, 1, -2, -4]  # their mean is zero
    assert values.promoted.sel(neuron=1).values.tolist() == [0, 3]
    assert values.suppressed.sel(neuron=1).values.tolist() == [5, 4]
    assert neuron_values(model, n_top=99).sizes["rank"] == 6


def test_values_are_of_the_tokens_that_can_be_answers():
    model = build(ModelSpec(n_heads=2, d_model=8, mlp=True), d_vocab=9, n_ctx=4, d_vocab_out=5, seed=0)
    values = neuron_values(model, n_top=7)
    assert values.sizes["token"] == values.sizes["rank"] == 5
    assert neuron_keys(model).sizes["token"] == 9


def test_a_constant_in_the_unembedding_changes_no_value():
    model = random_model(dtype="float64")
    before = neuron_values(model)
    with torch.no_grad():
        model.unembed.W_U += torch.randn(8, 1, generator=seeded(), dtype=torch.double)
    np.testing.assert_allclose(neuron_values(model).value, before.value, atol=1e-12)


def test_some_neurons_and_tokens_are_read_as_among_all():
    model = foreign_model()
    keys, values = neuron_keys(model, layer=1), neuron_values(model, layer=1)
    some = neuron_keys(model, layer=1, neurons=[5, 2], tokens=[7, 0, 9])
    xr.testing.assert_allclose(some, keys.sel(neuron=[5, 2], token=[7, 0, 9]))
    xr.testing.assert_allclose(neuron_values(model, layer=1, neurons=[5, 2]), values.sel(neuron=[5, 2]))


def test_results_can_be_saved(tmp_path):
    for result in (neuron_keys(random_model()), neuron_values(random_model())):
        assert reads_back(result, tmp_path / "result.nc")


def test_a_result_that_would_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 8 * 32 * 2 * 50)
    model = foreign_model()  # 32 neurons, 2 heads, 50 tokens
    neuron_keys(model)
    monkeypatch.setattr(module, "MAX_BYTES", 8 * 32 * 2 * 50 - 1)
    with pytest.raises(InputError, match="name fewer neurons or tokens"):
        neuron_keys(model)
    neuron_keys(model, tokens=range(49))


def test_what_has_no_such_neurons_is_refused():
    with pytest.raises(InputError, match="has no MLP"):
        neuron_keys(random_model(mlp=False))
    with pytest.raises(InputError, match="gated"):
        neuron_values(foreign_model(gated_mlp=True, act_fn="silu"))
    with pytest.raises(InputError, match="beside the attention"):
        neuron_keys(foreign_model(parallel_attn_mlp=True))
    with pytest.raises(InputError, match="must be 0; got 1"):
        neuron_keys(random_model(), layer=1)
    with pytest.raises(InputError, match="a neuron must be from 0 to 15; got 16"):
        neuron_values(random_model(), neurons=[16])
    with pytest.raises(InputError, match="n_top must be at least 1"):
        neuron_values(random_model(), n_top=0)


@pytest.mark.parametrize("name", ["embed.W_E", "blocks.0.mlp.W_in", "unembed.W_U"])
def test_nan_in_the_weights_is_refused(name):
    model = random_model()
    with torch.no_grad():
        model.get_parameter(name)[0, 0] = torch.nan
    for analysis in (neuron_keys, neuron_values):
        with pytest.raises(InputError, match=f"{name} of the model holds NaN"):
            analysis(model)


def test_twelve_layers_are_read_layer_by_layer():
    model = foreign_model(n_layers=12, d_model=16, normalization_type="LN")
    keys = xr.concat([neuron_keys(model, layer=layer) for layer in range(12)], "layer", combine_attrs="drop_conflicts")
    assert dict(keys.key_head_token.sizes) == {"layer": 12, "neuron": 64, "head": 2, "token": 50}
