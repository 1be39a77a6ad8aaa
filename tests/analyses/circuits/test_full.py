import numpy as np
import pytest
import torch
import xarray as xr
from transformers import GemmaConfig, GemmaForCausalLM, Olmo2Config, Olmo2ForCausalLM

from mnemoscope.analyses.full_circuits import ov_circuits, qk_circuits
from mnemoscope.analyses.head_circuits import composition
from mnemoscope.analyses.head_weights import effective_weights
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.models.building import fold_normalisation
from mnemoscope.models.constructed import induction
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from tests.bridge import llama_and_bridge, tiny_bridge
from tests.support import foreign_model, random_model, seeded

KINDS = [{"normalization": "none"}, {}, {"dtype": "float64"}, {"mlp": False, "n_heads": 4}]


def tokens(model, n: int = 6):
    return torch.randint(model.cfg.d_vocab, (n, model.cfg.n_ctx), generator=seeded())


def batch_of(inputs):
    return Batch(inputs=inputs, targets=inputs, scored=torch.ones_like(inputs, dtype=torch.bool))


def scores_from(circuits: xr.Dataset, inputs, sigma: xr.DataArray):
    """The scores (batch, head, query, key) of layer 0 that the nine parts add up to."""
    parts = {name: array.sel(layer=0) for name, array in circuits.items() if name != "sigma"}
    token, pos = xr.DataArray(inputs.numpy(), dims=("batch", "pos")), xr.DataArray(range(inputs.shape[1]), dims="pos")
    total = 0
    for name, array in parts.items():
        query, key = name.split("_")
        for side, part in (("query", query), ("key", key)):
            if part != "bias":
                place = {"token": token, "pos": pos}[part].rename(pos=side)
                scale = sigma.sel(token=token, pos=pos).rename(pos=side).drop_vars(("token", "pos"), errors="ignore")
                array = array.sel({f"{side}_{part}": place}).drop_vars(f"{side}_{part}") / scale
        total = total + array
    return total.transpose("batch", "head", "query", "key")


def first_layer_sigma(model) -> xr.DataArray:
    """Sigma before the first attention layer, which depends on the token and its position only."""
    weights = effective_weights(model, [0])
    return xr.DataArray(weights.sigma(weights.W_E[:, None] + weights.W_pos).numpy(), dims=("token", "pos"))


@pytest.mark.parametrize("changes", KINDS)
@pytest.mark.parametrize("n_layers", [1, 2, 4])
def test_the_parts_add_up_to_the_scores_of_the_first_layer(changes, n_layers):
    model = random_model(n_layers=n_layers, **changes)
    inputs = tokens(model)
    _, cache = model.run_with_cache(inputs)
    actual = cache["blocks.0.attn.hook_attn_scores"].numpy()
    found = scores_from(qk_circuits(model), inputs, first_layer_sigma(model)).values
    causal = np.isfinite(actual)
    np.testing.assert_allclose(found[causal], actual[causal], atol=2e-5)


@pytest.mark.parametrize("changes", KINDS)
@pytest.mark.parametrize("n_layers", [1, 3])
def test_the_parts_through_the_pattern_add_up_to_the_contribution_to_the_logits(changes, n_layers):
    model = random_model(n_layers=n_layers, **changes)
    inputs = tokens(model)
    _, cache = model.run_with_cache(inputs)
    circuits, sigma = ov_circuits(model).sel(layer=0), first_layer_sigma(model)
    token, pos = xr.DataArray(inputs.numpy(), dims=("batch", "key")), xr.DataArray(range(inputs.shape[1]), dims="key")
    source = circuits.token_logit.sel(source_token=token) + circuits.pos_logit.sel(source_pos=pos)
    pattern = xr.DataArray(cache["blocks.0.attn.hook_pattern"].numpy(), dims=("batch", "head", "query", "key"))
    found = xr.dot(pattern, source / sigma.sel(token=token, pos=pos), dim="key") + circuits.bias_logit
    written = torch.einsum("bphd,hdm->bphm", cache["blocks.0.attn.hook_z"], model.blocks[0].attn.W_O)
    if model.cfg.normalization_type == "LN":  # what the final normalisation makes of it, but for sigma
        written = (written - written.mean(-1, keepdim=True)) * model.ln_final.w
    expected = (written @ model.W_U).detach().numpy()
    np.testing.assert_allclose(found.transpose("batch", "query", "head", "logit"), expected, atol=2e-5)


def test_a_later_layer_has_the_direct_path_from_the_embeddings():
    model = random_model(n_layers=2, normalization="none")
    inputs = tokens(model)
    seen = {}
    model.run_with_hooks(
        inputs,
        fwd_hooks=[
            ("blocks.1.hook_resid_pre", lambda x, hook: model.W_E[inputs] + model.W_pos),
            ("blocks.1.attn.hook_attn_scores", lambda x, hook: seen.update(scores=x.detach().numpy())),
        ],
    )
    circuits = qk_circuits(model, layers=[1]).assign_coords(layer=[0])
    found = scores_from(circuits, inputs, first_layer_sigma(model)).values
    causal = np.isfinite(seen["scores"])
    np.testing.assert_allclose(found[causal], seen["scores"][causal], atol=2e-5)


@pytest.mark.parametrize("n_layers", [1, 2, 4])
@pytest.mark.parametrize("changes", [{"normalization": "none"}, {}, {"n_heads": 4, "mlp": False}])
def test_the_circuits_are_transformer_lenss_on_the_folded_model(n_layers, changes):
    model = random_model(n_layers=n_layers, **changes)
    truth = model if changes.get("normalization") == "none" else fold_normalisation(model)
    qk, ov = qk_circuits(model), ov_circuits(model)
    for name, query, key in (
        ("token_token", truth.W_E, truth.W_E),
        ("token_pos", truth.W_E, truth.W_pos),
        ("pos_token", truth.W_pos, truth.W_E),
        ("pos_pos", truth.W_pos, truth.W_pos),
    ):
        expected = (query @ truth.QK @ key.T).AB / truth.cfg.attn_scale
        np.testing.assert_allclose(qk[name], expected.detach(), atol=1e-5)
    for name, source in (("token_logit", truth.W_E), ("pos_logit", truth.W_pos)):
        np.testing.assert_allclose(ov[name], (source @ truth.OV @ truth.W_U).AB.detach(), atol=1e-5)


@pytest.mark.parametrize("kind", ["LN", "RMS", None])
def test_effective_weights_are_those_of_the_folded_model(kind):
    model = foreign_model(normalization_type=kind)
    truth = fold_normalisation(model) if kind else model
    weights = effective_weights(model)
    for name in ("W_E", "W_pos", "W_Q", "W_K", "W_V", "W_O", "W_U", "b_Q", "b_K"):
        np.testing.assert_allclose(getattr(weights, name), getattr(truth, name).detach(), atol=1e-5, err_msg=name)
    assert weights.attn_scale.tolist() == pytest.approx([3**0.5] * 2)  # and the value biases stay with their heads:
    moved = torch.einsum("lhd,lhdm->lm", weights.b_V, weights.W_O) if kind else 0
    b_o = model.b_O - model.b_O.mean(-1, keepdim=True) if kind == "LN" else model.b_O
    np.testing.assert_allclose((moved + b_o).detach(), truth.b_O.detach(), atol=1e-5)


def test_sigma_is_the_one_that_the_model_divides_by():
    for kind in ("LN", "RMS"):
        model = foreign_model(normalization_type=kind)
        inputs = tokens(model)
        _, cache = model.run_with_cache(inputs)
        found = first_layer_sigma(model).values[inputs, np.arange(inputs.shape[1])]
        np.testing.assert_allclose(found, cache["blocks.0.ln1.hook_scale"][..., 0], atol=1e-6)


def test_linearised_circuits_are_divided_by_the_mean_sigma_of_a_batch():
    model = random_model(n_layers=2)
    batch = batch_of(tokens(model))
    _, cache = model.run_with_cache(batch.inputs)
    mean = [float(cache[f"blocks.{layer}.ln1.hook_scale"].mean()) for layer in range(2)]
    qk, linear = qk_circuits(model), qk_circuits(model, normalisation="linearised", at=batch)
    np.testing.assert_allclose(linear.sigma, mean, rtol=1e-5)
    np.testing.assert_allclose(linear.token_pos, qk.token_pos / linear.sigma**2)
    np.testing.assert_allclose(linear.bias_pos, qk.bias_pos / linear.sigma)
    np.testing.assert_allclose(linear.bias_bias, qk.bias_bias)
    ov, final = ov_circuits(model, normalisation="linearised", at=batch), cache["ln_final.hook_scale"].mean()
    assert ov.sigma_final == pytest.approx(float(final), rel=1e-5)
    np.testing.assert_allclose(ov.pos_logit * ov.sigma_final, ov_circuits(model).pos_logit / ov.sigma)
    np.testing.assert_allclose(ov.bias_logit * ov.sigma_final, ov_circuits(model).bias_logit)
    assert "linearised" in linear.attrs["normalisation"]
    assert (linear.attrs["n_frozen_at"], linear.attrs["weights"]) == (6, "LayerNorm folded")


def test_without_normalisation_nothing_is_linearised():
    model = random_model(normalization="none")
    result = qk_circuits(model, normalisation="linearised")
    assert (result.attrs["normalisation"], result.attrs["weights"]) == ("none", "unprocessed")
    xr.testing.assert_equal(result, qk_circuits(model))


def test_the_mean_sigma_of_an_enumeration_follows_its_probabilities():
    model, inputs = random_model(), tokens(random_model())
    weighted = Batch(inputs=inputs, targets=inputs, scored=inputs > -1, weights=torch.tensor([3.0, 1, 0, 0, 0, 0]))
    repeated = batch_of(inputs[[0, 0, 0, 1]])
    first, second = (ov_circuits(model, normalisation="linearised", at=b) for b in (weighted, repeated))
    xr.testing.assert_allclose(first, second)


def test_a_choice_of_indices_is_that_part_of_the_whole():
    model = random_model(n_layers=2, d_vocab=7)
    chosen = {"tokens": [5, 2], "positions": [8, 0, 3], "layers": [1]}
    whole, part = qk_circuits(model), qk_circuits(model, **chosen)
    for side in ("query", "key"):
        whole = whole.sel({f"{side}_token": [5, 2], f"{side}_pos": [8, 0, 3]})
    xr.testing.assert_allclose(part, whole.sel(layer=[1]))
    whole, part = ov_circuits(model), ov_circuits(model, logits=[6], **chosen)
    xr.testing.assert_allclose(part, whole.sel(source_token=[5, 2], source_pos=[8, 0, 3], logit=[6], layer=[1]))


def test_the_model_is_left_as_it_is_and_results_can_be_saved(tmp_path):
    model = random_model(n_layers=2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for name, result in (("qk", qk_circuits(model)), ("ov", ov_circuits(model))):
        result.to_netcdf(tmp_path / name, engine="h5netcdf")
        with xr.open_dataset(tmp_path / name, engine="h5netcdf") as loaded:
            xr.testing.assert_identical(loaded.load(), result)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_hand_set_circuits_are_read():
    ov = ov_circuits(elimination_only(margin=10.0)).sel(layer=0)
    np.testing.assert_allclose(ov.token_logit.sel(head=0), -40 * np.eye(6))
    assert not ov.token_logit.sel(head=1).any()
    assert not ov.pos_logit.any()
    qk = qk_circuits(induction(6, 8))
    previous = qk.pos_pos.sel(layer=0, head=0).values
    assert previous[1, 0] > 10
    np.testing.assert_allclose(previous, previous[1, 0] * np.eye(8, k=-1), atol=1e-4)
    assert not qk.token_token.any()  # the induction head matches what another head wrote
    excluded = qk.bias_pos.sel(layer=1, head=0)
    assert excluded[0] < -10
    assert not excluded[1:].any()  # nothing precedes position 0


def test_token_circuits_of_a_rotary_model_are_the_scores_at_one_position():
    model = foreign_model(
        positional_embedding_type="rotary", rotary_dim=2, d_head=4, normalization_type=None, n_layers=1
    )
    inputs = tokens(model)
    _, cache = model.run_with_cache(inputs)
    qk = qk_circuits(model, parts=["token"]).sel(layer=0)
    place = xr.DataArray(inputs.numpy(), dims=("batch", "pos"))
    found = qk.token_token.sel(query_token=place, key_token=place) + qk.bias_bias
    found = found + qk.token_bias.sel(query_token=place) + qk.bias_token.sel(key_token=place)
    actual = cache["blocks.0.attn.hook_attn_scores"].diagonal(dim1=-2, dim2=-1)
    np.testing.assert_allclose(found.transpose("batch", "head", "pos"), actual, atol=1e-5)
    for circuits in (qk_circuits, ov_circuits):
        with pytest.raises(InputError, match=r"positions are rotary.*pass parts=\['token'\]"):
            circuits(model)


def test_a_scale_that_grows_with_the_layer_is_heeded():
    plain = foreign_model(n_layers=2, normalization_type=None)
    scaled, unscaled = (
        foreign_model(n_layers=2, normalization_type=None, **changes)
        for changes in ({"scale_attn_by_inverse_layer_idx": True}, {"use_attn_scale": False})
    )
    for model, factor in ((scaled, [1.0, 0.5]), (unscaled, 3**0.5)):
        model.load_state_dict(plain.state_dict())
        expected = qk_circuits(plain).pos_pos.values * np.reshape(factor, (-1, 1, 1, 1))
        np.testing.assert_allclose(qk_circuits(model).pos_pos, expected)


def test_large_vocabularies_are_refused_and_some_tokens_are_a_way_out():
    model = foreign_model(d_vocab=20_000, n_layers=1)
    for circuits in (qk_circuits, ov_circuits):
        with pytest.raises(InputError, match=r"at most 16,777,216 entries.*choose tokens="):
            circuits(model)
    assert qk_circuits(model, tokens=[0, 19_999]).token_token.shape == (1, 2, 2, 2)
    assert ov_circuits(model, tokens=[0, 19_999], logits=[3]).token_logit.shape == (1, 2, 2, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": [2]}, "an entry of layers must be from 0 to 1; got 2"),
        ({"tokens": [50]}, "an entry of tokens must be from 0 to 49; got 50"),
        ({"tokens": []}, "tokens must name at least one index"),
        ({"positions": [0, 0]}, "positions must name at least one index, and each once"),
        ({"positions": [-1]}, "an entry of positions must be from 0 to 19; got -1"),
        ({"normalisation": "linearised"}, "pass at=batch"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        qk_circuits(foreign_model(normalization_type="LN"), **arguments)


@pytest.mark.usefixtures("as_installed")
def test_unknown_words_are_refused():
    with pytest.raises(InputError, match="normalisation must be one of: folded, linearised; got 'actual'"):
        qk_circuits(random_model(), normalisation="actual")
    with pytest.raises(InputError, match="an entry of parts must be one of: token, pos; got 'bias'"):
        ov_circuits(random_model(), parts=["bias"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"final_rms": True, "normalization_type": "LN"}, "normalises differently before the unembedding"),
        ({"use_qk_norm": True}, "normalises queries and keys"),
        ({"attn_scores_soft_cap": 5.0}, "caps its attention scores"),
        ({"output_logits_soft_cap": 5.0}, "caps its logits"),
        ({"post_embedding_ln": True, "normalization_type": "LN"}, "normalises its embeddings"),
    ],
)
def test_models_whose_scores_are_no_products_of_weights_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        qk_circuits(foreign_model(**changes))


def test_heads_that_share_keys_and_values_are_read_in_a_llama():
    """With RMS normalisation in the blocks too; TransformerLens folds in float32."""
    model, bridge = llama_and_bridge()
    folded, found, bridged = fold_normalisation(model), effective_weights(model), effective_weights(bridge)
    for name in ("W_E", "W_Q", "W_K", "W_V", "W_O", "W_U"):
        torch.testing.assert_close(getattr(found, name), getattr(folded, name).double(), atol=2e-7, rtol=0)
        torch.testing.assert_close(getattr(bridged, name), getattr(found, name), atol=2e-7, rtol=0)
    assert found.W_K.shape == (2, 4, 8, 2)
    assert torch.equal(found.W_K[:, 0], found.W_K[:, 1])


@pytest.mark.parametrize("read", [qk_circuits, ov_circuits, composition], ids=["QK", "OV", "composition"])
def test_grouped_heads_are_read_as_heads_with_equal_keys(read):
    grouped, single = foreign_model(n_heads=4, n_key_value_heads=2), foreign_model(n_heads=4)
    with torch.no_grad():
        for name, weight in single.named_parameters():
            block, _, own = name.rpartition(".")
            weight.copy_(getattr(grouped.get_submodule(block), own))
    xr.testing.assert_allclose(read(grouped), read(single), atol=1e-12)


def test_a_bridge_that_computes_something_else_is_refused():
    for model, config, changes, what in (
        (GemmaForCausalLM, GemmaConfig, {"head_dim": 4}, "the stream before layer 0"),  # embeddings are scaled
        (Olmo2ForCausalLM, Olmo2Config, {}, "q of layer 0"),  # nothing is normalised before attention
    ):
        with pytest.raises(InputError, match=f"^{what} of the model must follow from its weights"):
            effective_weights(tiny_bridge(model, config, **changes)[1])


@pytest.mark.parametrize(
    "name", ["embed.W_E", "blocks.0.attn.W_K", "blocks.0.attn.b_V", "blocks.0.ln1.w", "unembed.W_U"]
)
def test_weights_that_are_not_finite_are_refused(name):
    model = random_model()
    with torch.no_grad():
        dict(model.named_parameters())[name].view(-1)[0] = torch.nan
    with pytest.raises(InputError, match="holds NaN or infinity"):
        ov_circuits(model)
