import pytest
import torch

import mnemoscope as ms
from mnemoscope.core import metrics
from mnemoscope.core.errors import InputError
from mnemoscope.core.seeding import generator
from tests.support import random_model

N, POS = 40, 9


def batch(**fields) -> ms.Batch:
    tokens = torch.randint(6, (N, POS), generator=generator(0, "tokens"))
    scored = torch.rand(N, POS, generator=generator(0, "scored"), dtype=torch.float32) < 0.5
    return ms.Batch(inputs=tokens, targets=tokens.roll(-1, 1), scored=scored, **fields)


def neurons(model, name: str = "neurons", layer: int = 0, **changes) -> ms.Dictionary:
    """The MLP of ReLU neurons as the dictionary that it is."""
    norm, mlp = model.blocks[layer].ln2, model.blocks[layer].mlp
    parts = {
        "w_enc": mlp.W_in.T * norm.w,
        "b_enc": mlp.b_in + norm.b @ mlp.W_in,
        "w_dec": mlp.W_out,
        "b_dec": mlp.b_out,
    }
    place = {"name": name, "layer": layer, "reads": "mlp_in", "writes": "mlp_out"}
    return ms.Dictionary(**place, **{key: value.detach() for key, value in parts.items()} | changes)


def test_neurons_as_features_reconstruct_everything():
    model = random_model(mlp=True, n_layers=2)
    found = ms.analyses.dictionary_quality(model, [neurons(model, layer=1)], batch()).squeeze("dictionary")
    assert found.variance_explained.item() == pytest.approx(1, abs=1e-6)
    assert found.loss.item() == pytest.approx(found.clean_loss.item(), abs=1e-6)
    worse = found.baseline_loss > found.clean_loss
    assert worse.any()
    assert found.recovered.values[worse] == pytest.approx(1, abs=1e-4)
    assert found.recovered.isnull().values.tolist() == (~worse).values.tolist()
    _, cache = model.run_with_cache(batch().inputs)
    post = cache["blocks.1.mlp.hook_post"] > 0
    assert found.l0.item() == pytest.approx(post.sum(-1).double().mean().item())
    assert found.dead.item() == pytest.approx((~post.any(0).any(0)).double().mean().item())


def test_the_loss_is_that_of_the_model_without_the_error():
    model, b = random_model(mlp=True), batch()
    half = neurons(model, b_enc=torch.full((16,), 0.3))
    found = ms.analyses.dictionary_quality(model, [half], b)
    logits = ms.with_dictionaries(model, [half], error=False)(b.inputs)[b.scored].double()
    expected = torch.nn.functional.cross_entropy(logits, b.targets[b.scored])
    assert found.loss.item() == pytest.approx(expected.item(), abs=1e-6)
    assert abs(found.loss.item() - found.clean_loss.item()) > 1e-3


def test_no_feature_is_the_baseline():
    """A dictionary that writes a constant has the loss of ablation, and explains nothing."""
    model, b = random_model(mlp=True), batch()
    silent = {"w_dec": torch.zeros(16, 8), "b_enc": torch.full((16,), -1e4)}
    zero = neurons(model, "zero", **silent, b_dec=torch.zeros(8))
    _, cache = model.run_with_cache(b.inputs)
    mean = neurons(model, "mean", **silent, b_dec=cache["blocks.0.hook_mlp_out"].mean((0, 1)).detach())
    found = ms.analyses.dictionary_quality(model, [zero, mean], b)
    assert found.loss.sel(dictionary="zero").item() == pytest.approx(
        found.baseline_loss.sel(dictionary="zero", baseline="zero").item(), abs=1e-6
    )
    assert found.variance_explained.sel(dictionary="mean").item() == pytest.approx(0, abs=1e-5)
    assert found.variance_explained.sel(dictionary="zero").item() < -1e-3
    assert found.l0.values.tolist() == [0, 0]
    assert found.dead.values.tolist() == [1, 1]


def test_losses_by_plain_hooks():
    model, b = random_model(mlp=True), batch()
    one = neurons(model, b_enc=torch.full((16,), -0.5))

    def loss(change=None) -> float:
        hooks = [] if change is None else [("blocks.0.hook_mlp_out", change)]
        logits = model.run_with_hooks(b.inputs, fwd_hooks=hooks)
        return metrics.cross_entropy(logits.double(), b.targets)[b.scored].mean().item()

    _, cache = model.run_with_cache(b.inputs)
    spliced = one.reconstruct(cache["blocks.0.ln2.hook_normalized"])
    written = cache["blocks.0.hook_mlp_out"]
    found = ms.analyses.dictionary_quality(model, [one], b).squeeze("dictionary")
    assert found.clean_loss.item() == pytest.approx(loss())
    assert found.loss.item() == pytest.approx(loss(lambda y, hook: spliced))
    zero, mean = loss(lambda y, hook: y * 0), loss(lambda y, hook: written.mean(0).expand_as(y))
    assert found.baseline_loss.values == pytest.approx([zero, mean])
    left = (written - spliced).square().sum() / (written - written.mean((0, 1))).square().sum()
    assert found.variance_explained.item() == pytest.approx(1 - left.item(), rel=1e-5)


def test_an_autoencoder_reads_and_writes_one_place():
    model = random_model(mlp=True)
    signs = torch.cat([torch.eye(8), -torch.eye(8)])
    same = {"w_enc": signs, "b_enc": torch.zeros(16), "w_dec": signs, "b_dec": torch.zeros(8)}
    kinds = ("resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post")
    all_of_it = [ms.Dictionary(name=kind, layer=0, reads=kind, writes=kind, **same) for kind in kinds]
    found = ms.analyses.dictionary_quality(model, all_of_it, batch())
    assert found.loss.values == pytest.approx(found.clean_loss.item(), abs=1e-6)
    assert found.l0.values == pytest.approx(8)


def test_weights_of_rows_count():
    model, weights = random_model(mlp=True), torch.zeros(N)
    weights[:7] = 1 / 7
    one = neurons(model, b_enc=torch.full((16,), -0.5))
    weighted = ms.analyses.dictionary_quality(model, [one], batch(weights=weights))
    some = ms.analyses.dictionary_quality(model, [one], batch().select(slice(7)))
    for name in ("variance_explained", "loss", "l0", "baseline_loss", "clean_loss"):
        assert weighted[name].values == pytest.approx(some[name].values, rel=1e-5), name


def test_padding_does_not_count():
    model, lengths = random_model(mlp=True), torch.full((N,), 6)
    one = neurons(model, b_enc=torch.full((16,), -0.5))
    tokens, scored = batch().inputs, batch().scored.clone()
    scored[:, 6:] = False
    padded = ms.Batch(inputs=tokens, targets=tokens, scored=scored, lengths=lengths)
    short = ms.Batch(inputs=tokens[:, :6], targets=tokens[:, :6], scored=scored[:, :6])
    long, cut = (ms.analyses.dictionary_quality(model, [one], b) for b in (padded, short))
    for name in ("variance_explained", "l0", "dead", "loss", "baseline_loss"):
        assert long[name].values == pytest.approx(cut[name].values, rel=1e-5), name


def test_the_model_is_left_as_it_was():
    model, b = random_model(mlp=True), batch()
    before = model(b.inputs)
    ms.analyses.dictionary_quality(model, [neurons(model)], b)
    assert torch.equal(model(b.inputs), before)
    assert not any(point.fwd_hooks for point in model.hook_dict.values())


def test_what_does_not_fit_is_refused():
    model = random_model(mlp=True)
    one = neurons(model)
    with pytest.raises(InputError, match="at least one"):
        ms.analyses.dictionary_quality(model, [], batch())
    with pytest.raises(InputError, match="different names; got neurons, neurons"):
        ms.analyses.dictionary_quality(model, [one, one], batch())
    with pytest.raises(InputError, match="width 8 to 8 and the model 16"):
        ms.analyses.dictionary_quality(random_model(mlp=True, d_model=16), [one], batch())
    with pytest.raises(InputError, match="no MLP"):
        ms.analyses.dictionary_quality(random_model(mlp=False), [one], batch())
