import numpy as np
import pytest
import torch
from scipy import stats

from mnemoscope.analyses.head_circuits import composed_circuit, composition
from mnemoscope.core.errors import InputError
from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.building import build, fold_normalisation
from mnemoscope.models.constructed import induction
from tests.support import foreign_model, global_generators_untouched, random_model

FAR = 3
"""Standard deviations."""


def by_layer(scores, n_layers: int):
    return scores.values.reshape(n_layers, -1, n_layers, scores.sizes["reader"] // n_layers)


@pytest.mark.parametrize("n_layers", [2, 3, 4])
@pytest.mark.parametrize("changes", [{"normalization": "none"}, {}, {"mlp": False, "n_heads": 4}])
def test_scores_are_transformer_lenss_on_the_folded_model(n_layers, changes):
    model = random_model(n_layers=n_layers, **changes)
    truth = model if changes.get("normalization") == "none" else fold_normalisation(model)
    result = composition(model, n_random=2)
    layer = np.arange(n_layers)
    later = np.broadcast_to((layer[:, None] < layer)[:, None, :, None], (n_layers, model.cfg.n_heads) * 2)
    for through in "QKV":
        found = by_layer(result.score.sel(through=through), n_layers)
        expected = truth.all_composition_scores(through).detach().numpy()
        np.testing.assert_allclose(found[later], expected[later], atol=1e-5)
        assert np.isnan(found[~later]).all()


def test_transformer_lens_does_not_fold_by_itself():
    model = random_model(n_layers=2)
    with torch.no_grad():
        model.blocks[1].ln1.w[0] = 20.0  # readers of layer 1 see little but the first direction
    found = by_layer(composition(model, n_random=2).score.sel(through="Q"), 2)[0, :, 1]
    assert np.abs(found - model.all_composition_scores("Q")[0, :, 1].detach().numpy()).max() > 0.1


def test_scores_by_hand():
    model = random_model(n_layers=2, normalization="none", n_heads=1, d_model=4)
    first, second = (block.attn for block in model.blocks)
    with torch.no_grad():
        first.W_V[0], first.W_O[0] = torch.eye(4), torch.diag(torch.tensor([3.0, 4, 0, 12]))
        second.W_Q[0], second.W_K[0] = torch.diag(torch.tensor([1.0, 0, 0, 1])), torch.eye(4).roll(1, 1)
        second.W_V[0], second.W_O[0] = torch.diag(torch.tensor([0.0, 0, 1, 0])), torch.eye(4)
    result = composition(model).sel(writer="L0H0", reader="L1H0")
    # row i of W_K is direction i + 1: W_Q W_K^T takes 0 to 3 and 3 to 2, so that queries read 0 and 3, keys 3 and 2
    assert result.score.sel(through="Q").item() == pytest.approx((3**2 + 12**2) ** 0.5 / (13 * 2**0.5))
    assert result.score.sel(through="K").item() == pytest.approx(12 / (13 * 2**0.5))
    assert result.score.sel(through="V").item() == 0
    assert result.share_below.sel(through="V").item() < 0.01


@pytest.mark.parametrize("normalization", ["LN", "none"])
def test_an_untrained_model_lies_inside_the_baseline(normalization):
    spec = ModelSpec(d_model=16, n_heads=4, n_layers=3, normalization=normalization)
    results = [composition(build(spec, d_vocab=10, n_ctx=5, seed=seed), n_random=200, seed=seed) for seed in range(3)]
    for through in "QKV":
        below = np.concatenate([r.share_below.sel(through=through).values.ravel() for r in results])
        below = below[~np.isnan(below)]
        assert len(below) == 3 * 3 * 16
        assert stats.kstest(below, "uniform").pvalue > 0.01
        assert abs(np.mean(below) - 0.5) < 0.08


def test_the_mean_square_of_the_baseline_does_not_depend_on_the_weights():
    for normalization, d_seen in (("LN", 7), ("none", 8)):
        result = composition(random_model(n_layers=2, normalization=normalization), n_random=20_000)
        assert result.attrs["baseline_rms"] == pytest.approx(d_seen**-0.5)
        square = result.baseline_mean**2 + result.baseline_sd**2
        pairs = square.values[~np.isnan(square.values)]
        assert len(pairs) == 12
        np.testing.assert_allclose(pairs, 1 / d_seen, rtol=0.03)


def test_the_baseline_is_that_of_matrices_turned_at_random():
    model, draws = random_model(n_layers=2, normalization="none"), torch.Generator().manual_seed(0)
    result = composition(model, n_random=4000).sel(through="K", writer="L0H1", reader="L1H0")
    written = (model.W_V[0, 1] @ model.W_O[0, 1]).detach()
    read = (model.W_K[1, 0] @ model.W_Q[1, 0].T).detach()
    turned = [torch.linalg.qr(torch.randn(8, 8, generator=draws)).Q for _ in range(2000)]
    scores = torch.stack([(written @ turn @ read).norm() for turn in turned]) / written.norm() / read.norm()
    assert result.baseline_mean.item() == pytest.approx(scores.mean().item(), rel=0.02)
    assert result.baseline_sd.item() == pytest.approx(scores.std().item(), rel=0.06)
    own = ((written @ read).norm() / written.norm() / read.norm()).item()
    assert result.score.item() == pytest.approx(own)
    assert result.share_below.item() == pytest.approx((scores < own).double().mean().item(), abs=0.03)
    assert result.z.item() == pytest.approx((own - result.baseline_mean.item()) / result.baseline_sd.item())


def test_the_hand_set_induction_heads_compose_through_keys():
    result = composition(induction(10, 14, noise=0.02))
    largest = result.score.where(result.score == result.score.max(), drop=True)
    assert [largest[dim].item() for dim in largest.dims] == ["K", "L0H0", "L1H0"]
    pair = result.sel(through="K", writer="L0H0", reader="L1H0")
    assert pair.z > 5 * FAR
    assert pair.share_below > 0.99
    rest = result.z.where(result.score < largest.item())
    assert rest.max() < FAR
    exact = composition(induction(10, 14))  # the idle heads have no scores
    assert int(exact.score.notnull().sum()) == 3


def test_results_follow_the_seed_and_leave_the_global_generators_alone():
    model = random_model(n_layers=2)
    with global_generators_untouched():
        first, again, other = (composition(model, n_random=50, seed=seed) for seed in (0, 0, 1))
    assert first.identical(again)
    assert not first.baseline_mean.equals(other.baseline_mean)
    assert first.score.equals(other.score)


def test_composed_circuits_are_products_of_the_folded_weights():
    model = random_model(n_layers=3, d_vocab=7)
    truth, some = fold_normalisation(model), [6, 0, 3]
    token = truth.W_E[some]
    ov, qk = truth.OV[0, 1].AB, truth.QK[2, 0].AB / 2  # attn_scale = sqrt(4)
    expected = {
        "Q": token @ ov @ qk @ token.T,
        "K": token @ qk @ ov.T @ token.T,
        "V": token @ ov @ truth.OV[2, 0].AB @ truth.W_U[:, some],
    }
    for through, matrix in expected.items():
        found = composed_circuit(model, writer=(0, 1), reader=(2, 0), through=through, tokens=some)
        np.testing.assert_allclose(found, matrix.detach(), atol=1e-5)
        assert found.dims == (("source_token", "logit") if through == "V" else ("query_token", "key_token"))


def test_the_induction_head_matches_what_the_previous_token_head_wrote():
    model = induction(6, 8)
    path = {"writer": (0, 0), "reader": (1, 0)}
    found = composed_circuit(model, through="K", **path)
    assert found[0, 0] > 10
    np.testing.assert_allclose(found, float(found[0, 0]) * np.eye(6), atol=1e-4)
    assert not composed_circuit(model, through="Q", **path).any()
    assert not composed_circuit(model, through="V", **path).any()


@pytest.mark.usefixtures("as_installed")
def test_wrong_input_is_refused():
    model = random_model(n_layers=2)
    with pytest.raises(InputError, match="must have two layers, it has 1"):
        composition(random_model())
    with pytest.raises(InputError, match="an entry of through must be one of: Q, K, V; got 'O'"):
        composition(model, through=["O"])
    with pytest.raises(InputError, match="n_random must be at least 2"):
        composition(model, n_random=1)
    path = {"writer": (0, 0), "reader": (1, 0), "through": "K"}
    for wrong, message in (
        ({"writer": (0, 2)}, "the head of writer must be from 0 to 1; got 2"),
        ({"reader": (2, 0)}, "the layer of reader must be from 0 to 1; got 2"),
        ({"writer": (1, 1)}, "reader must be in a later layer than the writer's, 1; got 1"),
        ({"tokens": [6]}, "an entry of tokens must be from 0 to 5; got 6"),
    ):
        with pytest.raises(InputError, match=message):
            composed_circuit(model, **{**path, **wrong})
    with pytest.raises(InputError, match="the number of tokens must be from 1 to 4096"):
        composed_circuit(foreign_model(d_vocab=5000), **path)
