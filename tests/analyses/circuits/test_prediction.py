from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses import head_predictions as prediction
from mnemoscope.analyses.full_circuits import ov_circuits, qk_circuits
from mnemoscope.analyses.head_predictions import fit, fit_sums, predict_patterns, predict_removal
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.models.constructed import induction, induction_batch
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from tests.support import foreign_model, perturbed, random_model, seeded, small_spec

PLAIN = {"normalization": "none", "mlp": False}


def random_batch(model, n: int = 6, seed: int = 0):
    inputs = torch.randint(model.cfg.d_vocab, (n, model.cfg.n_ctx), generator=seeded(seed))
    return Batch(inputs=inputs, targets=inputs, scored=torch.arange(model.cfg.n_ctx).expand(n, -1) > 2)


def test_agreement_by_hand():
    actual, predicted = torch.tensor([[1.0, -1, 2, -2]]), torch.tensor([[2.0, -2, 1, -1]])
    total = fit_sums(actual.double(), predicted.double(), torch.tensor([[1.0, 1, 2, 2]]).double())
    found = {name: value.item() for name, value in fit(total).items()}
    squares, guessed, products = 1 + 1 + 8 + 8, 4 + 4 + 2 + 2, 2 + 2 + 4 + 4
    assert found == pytest.approx(
        {
            "r2": 1 - (1 + 1 + 2 + 2) / squares,
            "correlation": products / (squares * guessed) ** 0.5,
            "slope": products / guessed,
            "share": products / squares,
            "actual_rms": (squares / 6) ** 0.5,
        }
    )
    nothing = fit(fit_sums(1e-6 * actual.double(), predicted.double(), torch.ones(1, 4).double()))
    assert all(nothing[name].isnan() for name in ("r2", "correlation", "slope", "share"))


@pytest.mark.parametrize(("changes", "n_layers"), [(PLAIN, 1), ({}, 1), ({"n_heads": 4}, 3), ({"dtype": "float64"}, 2)])
def test_scores_of_the_first_layer_are_predicted_exactly_with_sigma_as_it_is(changes, n_layers):
    model = random_model(n_layers=n_layers, **changes)
    result = predict_patterns(model, random_batch(model), normalisation="actual").sel(part="all")
    first = result.sel(layer=0)
    np.testing.assert_allclose(first.r2, 1, atol=1e-6)
    np.testing.assert_allclose(first.correlation, 1, atol=1e-6)
    np.testing.assert_allclose(first.kl, 0, atol=1e-6)
    np.testing.assert_array_equal(first.top_agreement, 1)
    assert (result.r2.isel(layer=slice(1, None)) < 0.99).all()


def test_other_treatments_of_sigma_are_not_exact():
    model = random_model()
    batch = random_batch(model, 30)
    folded, linear = (predict_patterns(model, batch, normalisation=n).sel(part="all") for n in ("folded", "linearised"))
    assert (linear.r2 < 0.9999).all()
    assert (linear.kl > 1e-5).all()
    assert float(linear.r2.mean()) > float(folded.r2.mean())
    elsewhere = predict_patterns(model, batch, at=random_batch(model, seed=1)).sel(part="all")
    assert not np.allclose(elsewhere.r2, linear.r2, atol=1e-6)
    assert elsewhere.attrs["n_frozen_at"] == 6


def direct_comparison(actual, predicted):
    """The measures of one head from loops; scores (batch, query, key)."""
    a, p, kl, top = [], [], [], []
    for row in range(len(actual)):
        for query in range(1, actual.shape[1]):
            x, y = actual[row, query, : query + 1], predicted[row, query, : query + 1]
            a, p = [*a, *(x - x.mean())], [*p, *(y - y.mean())]
            pattern, guess = (np.exp(s - np.logaddexp.reduce(s)) for s in (x, y))
            kl.append((pattern * np.log(pattern / guess)).sum())
            top.append(x.argmax() == y.argmax())
    a, p = np.array(a), np.array(p)
    r2, correlation = 1 - ((a - p) ** 2).sum() / (a**2).sum(), (a * p).sum() / ((a**2).sum() * (p**2).sum() or 1) ** 0.5
    return {"r2": r2, "correlation": correlation, "kl": np.mean(kl), "top_agreement": np.mean(top)}


@pytest.mark.parametrize("layer", [0, 1])
def test_pattern_measures_are_those_of_the_circuits_one_by_one(layer):
    model = random_model(n_layers=2)
    batch = random_batch(model, 4)
    inputs = batch.inputs.numpy()
    qk = qk_circuits(model, normalisation="linearised", at=batch).sel(layer=layer)
    token, pos = (xr.DataArray(values, dims=dims) for values, dims in ((inputs, ("b", "p")), (range(9), "p")))
    place = {"token": token, "pos": pos}
    total, alone = 0, {}
    for part in prediction.PARTS[1:-1]:
        query, key = part.split("_")
        array = qk[part]
        if query != "bias":
            array = array.sel({f"query_{query}": place[query].rename(p="q")}).drop_vars(f"query_{query}")
        array = array.sel({f"key_{key}": place[key].rename(p="k")}).drop_vars(f"key_{key}")
        alone[part] = array
        total = total + array
    _, cache = model.run_with_cache(batch.inputs)
    actual = cache[f"blocks.{layer}.attn.hook_attn_scores"].double().numpy()
    result = predict_patterns(model, batch).sel(layer=layer)
    like = xr.zeros_like(total)
    for part, scores in {"all": total, **alone, "uniform": like}.items():
        predicted = scores.broadcast_like(like).transpose("b", "head", "q", "k").values
        for head in range(2):
            expected = direct_comparison(actual[:, head], predicted[:, head])
            found = result.sel(head=head, part=part)
            assert found.r2.item() == pytest.approx(expected["r2"], abs=1e-5)
            assert found.kl.item() == pytest.approx(expected["kl"], abs=1e-5)
            if part != "uniform":
                assert found.correlation.item() == pytest.approx(expected["correlation"], abs=1e-5)
                assert found.top_agreement.item() == pytest.approx(expected["top_agreement"])
    assert result.sel(part="uniform").r2.values.tolist() == [0, 0]


def test_the_shares_of_the_parts_add_up():
    model = random_model(n_layers=2)
    share = predict_patterns(model, random_batch(model), normalisation="folded").share
    np.testing.assert_allclose(share.drop_sel(part="all").sum("part"), share.sel(part="all"))


def test_the_weights_tell_a_previous_token_head_and_fail_on_an_induction_head():
    model = induction(8, 12, noise=0.02)
    result = predict_patterns(model, induction_batch(100, n_tokens=8, n_ctx=12, generator=seeded()))
    previous, matching = (result.sel(layer=layer, head=0) for layer in (0, 1))
    assert previous.r2.sel(part="pos_pos") > 0.99
    assert previous.top_agreement.sel(part="pos_pos") > 0.99
    assert previous.kl.sel(part="pos_pos") < 0.01 < 1 < previous.kl.sel(part="token_token")
    assert matching.kl.sel(part="all") > 1  # its keys were written by the other head
    assert matching.top_agreement.sel(part="all") < 0.5


@pytest.mark.parametrize("n_heads", [1, 2])
def test_removal_in_a_linear_model_is_predicted_exactly(n_heads):
    model = random_model(**PLAIN, n_heads=n_heads)
    result = predict_removal(model, random_batch(model), reference=random_batch(model, 9, seed=1))
    for name in ("r2", "correlation", "slope"):
        np.testing.assert_allclose(result[name], 1, atol=1e-5)
    assert (result.actual_rms > 0.01).all()


def test_reads_of_the_first_layer_agree_and_an_mlp_makes_both_fail():
    model = random_model()
    batch = random_batch(model, 30)
    result = predict_removal(model, batch, normalisation="actual")
    np.testing.assert_allclose(*(result.r2.sel(read=read) for read in ("circuit", "direct")), atol=1e-6)
    assert (result.r2 < 0.999).all()
    frozen = predict_removal(model, batch, normalisation="linearised")
    assert not np.allclose(frozen.r2, result.r2, atol=1e-3)


def test_the_direct_read_is_exact_for_the_last_layer_only_and_the_circuit_misses_composition():
    model = random_model(**PLAIN, n_layers=2)
    result = predict_removal(model, random_batch(model)).r2
    np.testing.assert_allclose(result.sel(layer=1, read="direct"), 1, atol=1e-5)
    assert (result.sel(layer=1, read="circuit") < 0.99).all()
    assert (result.sel(layer=0, read="direct") < 0.999).all()


@pytest.mark.parametrize("kind", ["zero", "mean"])
def test_removal_measures_are_those_of_the_circuits_one_by_one(kind):
    model = random_model(n_layers=2)
    batch, reference = random_batch(model, 5), random_batch(model, 7, seed=1)
    ov = ov_circuits(model, normalisation="linearised", at=batch).sel(layer=1, head=1)

    def read(some):
        token = xr.DataArray(some.inputs.numpy(), dims=("b", "k"))
        source = ov.token_logit.sel(source_token=token) + ov.pos_logit.rename(source_pos="k").drop_vars("k")
        _, cache = model.run_with_cache(some.inputs)
        pattern = xr.DataArray(cache["blocks.1.attn.hook_pattern"][:, 1].numpy(), dims=("b", "q", "k"))
        return (xr.dot(pattern, source, dim="k") + ov.bias_logit).transpose("b", "q", "logit").values

    _, cache = model.run_with_cache(reference.inputs)
    held = cache["blocks.1.attn.hook_z"][:, :, 1].mean(0) if kind == "mean" else 0

    def remove(z, hook):
        z[:, :, 1] = held
        return z

    predicted = -(read(batch) - (read(reference).mean(0) if kind == "mean" else 0))
    removed = model.run_with_hooks(batch.inputs, fwd_hooks=[("blocks.1.attn.hook_z", remove)])
    actual = (removed - model(batch.inputs)).detach().numpy()
    a, p = ((x - x.mean(-1, keepdims=True))[:, 3:].ravel() for x in (actual, predicted))
    found = predict_removal(model, batch, reference=reference, kinds=[kind], layers=[1]).sel(
        kind=kind, layer=1, head=1, read="circuit"
    )
    assert found.r2.item() == pytest.approx(1 - ((a - p) ** 2).sum() / (a**2).sum(), abs=1e-5)
    assert found.slope.item() == pytest.approx((a * p).sum() / (p**2).sum(), abs=1e-5)
    assert found.correlation.item() == pytest.approx(np.corrcoef(a, p)[0, 1], abs=1e-4)
    assert found.actual_rms.item() == pytest.approx((a**2).mean() ** 0.5, abs=1e-5)


def test_the_elimination_head_does_what_its_weights_say():
    task = small_spec("v1").task
    batch = task.sample(50, split="test", generator=seeded())
    model = elimination_only()
    pattern = predict_patterns(model, batch).sel(layer=0, head=0)
    assert pattern.kl.sel(part="pos_pos") < 1e-6
    removal = predict_removal(model, batch, kinds=["zero"]).sel(kind="zero", layer=0)
    np.testing.assert_allclose(removal.r2.sel(head=0), 1, atol=1e-6)
    assert removal.actual_rms.sel(head=0) > 5
    assert removal.r2.sel(head=1).isnull().all()  # it does nothing, so that there is nothing to predict


@pytest.mark.parametrize("predict", [predict_patterns, predict_removal])
def test_an_enumeration_counts_by_its_probabilities(predict):
    model = random_model(n_layers=2)
    batch = random_batch(model, 3)
    weighted = replace(batch, weights=torch.tensor([0.5, 0.25, 0.25]))
    xr.testing.assert_allclose(predict(model, weighted), predict(model, batch.select(torch.tensor([0, 0, 1, 2]))))


@pytest.mark.parametrize("predict", [predict_patterns, predict_removal])
def test_the_size_of_the_chunks_does_not_matter(predict, monkeypatch):
    model = random_model(n_layers=2)
    batch = random_batch(model, 7)
    whole = predict(model, batch)
    monkeypatch.setattr(prediction, "MAX_BYTES", 50_000)
    xr.testing.assert_allclose(predict(model, batch), whole, atol=1e-6)


@pytest.mark.parametrize("predict", [predict_patterns, predict_removal])
def test_the_model_is_left_as_it_is_and_results_can_be_saved(predict, tmp_path):
    model = random_model(n_layers=2)
    batch = random_batch(model)
    clean = model(batch.inputs)
    result = predict(model, batch, layers=[1])
    assert torch.equal(model(batch.inputs), clean)
    assert (result.layer.values.tolist(), result.attrs["weights"]) == ([1], "LayerNorm folded")
    result.to_netcdf(tmp_path / "result", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "result", engine="h5netcdf") as loaded:
        xr.testing.assert_identical(loaded.load(), result)


@pytest.mark.parametrize("predict", [predict_patterns, predict_removal])
def test_unsupported_models_are_refused(predict):
    rotary = foreign_model(positional_embedding_type="rotary", rotary_dim=2, d_head=4)
    with pytest.raises(InputError, match="rotary"):
        predict(rotary, random_batch(rotary))
    broken = random_model()
    with torch.no_grad():
        broken.blocks[0].mlp.b_out[0] = torch.nan
    with pytest.raises(InputError, match=r"hook_resid_post holds NaN or infinity"):
        predict(broken, random_batch(broken))
    with pytest.raises(InputError, match="an entry of layers must be 0; got 1"):
        predict(random_model(), random_batch(random_model()), layers=[1])


@pytest.mark.usefixtures("as_installed")
def test_wrong_input_is_refused():
    model = random_model()
    batch = random_batch(model)
    one_token = Batch(inputs=batch.inputs[:, :1], targets=batch.inputs[:, :1], scored=batch.scored[:, :1])
    with pytest.raises(InputError, match=r"at least two tokens; got shape \(6, 1\)"):
        predict_patterns(model, one_token)
    with pytest.raises(InputError, match="normalisation must be one of: folded, linearised, actual; got 'none'"):
        predict_patterns(model, batch, normalisation="none")
    with pytest.raises(InputError, match="no scored position"):
        predict_removal(model, replace(batch, scored=torch.zeros_like(batch.scored)))
    with pytest.raises(InputError, match=r"as long as the batch's \(9\); got 1"):
        predict_removal(model, batch, reference=one_token)
    with pytest.raises(InputError, match="an entry of kinds must be one of: zero, mean; got 'resample'"):
        predict_removal(model, batch, kinds=["resample"])
    local = foreign_model(use_local_attn=True, attn_types=["global", "local"], window_size=2)
    with pytest.raises(InputError, match="local attention"):
        predict_patterns(local, random_batch(local))


def test_a_transformer_bridge_will_do():
    from transformer_lens.model_bridge import TransformerBridge

    config = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 16, "n_ctx": 9, "d_vocab": 6}
    with torch.random.fork_rng(devices=[]):
        bridge = TransformerBridge.boot_native({**config, "act_fn": "gelu_new", "normalization_type": "LN"}).eval()
    perturbed(bridge)
    batch = random_batch(bridge)
    result = predict_patterns(bridge, batch, normalisation="actual").sel(part="all")
    np.testing.assert_allclose(result.r2.sel(layer=0), 1, atol=1e-6)
    removal = predict_removal(bridge, batch, normalisation="actual").sel(layer=0).r2
    np.testing.assert_allclose(removal.sel(read="circuit"), removal.sel(read="direct"), atol=1e-5)
