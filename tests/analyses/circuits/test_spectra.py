import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses.full_circuits import ov_circuits, qk_circuits
from mnemoscope.analyses.head_circuits import copying, offset_affinity, same_token_affinity, singular_tokens, spectra
from mnemoscope.core.errors import InputError
from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.building import build, fold_normalisation
from mnemoscope.models.constructed import attention_memory, induction
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from tests.support import foreign_model, random_model


def centred_rows(matrix):
    return matrix - matrix.mean(-1, keepdims=True)


@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize("normalization", ["LN", "none"])
def test_spectra_are_transformer_lenss(n_layers, normalization):
    model = random_model(n_layers=n_layers, normalization=normalization, d_vocab=11)
    truth = fold_normalisation(model) if normalization == "LN" else model
    by_token = {"OV": truth.W_E @ truth.OV @ truth.W_U, "QK": truth.W_E @ truth.QK @ truth.W_E.T}
    for basis, products in (("token", by_token), ("residual", {"OV": truth.OV, "QK": truth.QK})):
        result = spectra(model, basis=basis, centred=False)
        for circuit, product in products.items():
            scale = truth.cfg.attn_scale if circuit == "QK" else 1
            found = result.sel(circuit=circuit)
            np.testing.assert_allclose(found.singular_value, product.S.detach() / scale, atol=1e-5)
            expected = product.eigenvalues.detach() / scale
            np.testing.assert_allclose(found.eigenvalue.sum("index").real, expected.sum(-1).real, atol=1e-5)
            np.testing.assert_allclose(abs(found.eigenvalue), expected.abs().sort(descending=True).values, atol=1e-5)
            score = expected.sum(-1).real / expected.abs().sum(-1)
            np.testing.assert_allclose(found.sign_score, score, atol=1e-4)


def test_centred_spectra_are_those_of_the_full_circuits_with_centred_rows():
    model = random_model(n_layers=2, d_vocab=9)
    result = spectra(model, tokens=[1, 2, 4, 5, 8])
    some = [1, 2, 4, 5, 8]
    full = {
        "OV": ov_circuits(model, tokens=some, logits=some).token_logit,
        "QK": qk_circuits(model, tokens=some).token_token,
    }
    for circuit, array in full.items():
        matrix, found = torch.tensor(centred_rows(array.values)), result.sel(circuit=circuit)
        np.testing.assert_allclose(found.singular_value, torch.linalg.svdvals(matrix)[..., :4], atol=1e-10)
        eigenvalues = torch.linalg.eigvals(matrix)
        score = eigenvalues.real.sum(-1) / eigenvalues.abs().sum(-1)
        np.testing.assert_allclose(found.sign_score, score, atol=1e-6)


def test_a_constant_on_all_logits_changes_nothing():
    model = random_model(d_vocab=9)
    before = spectra(model), copying(model)
    with torch.no_grad():
        model.unembed.W_U += 5 * torch.randn(8, 1, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(spectra(model).sign_score, before[0].sign_score, atol=1e-5)
    np.testing.assert_allclose(copying(model).own, before[1].own)


def test_a_head_that_copies_and_one_that_rules_out_by_hand():
    copies = attention_memory([0, 1, 2, 3, 4], margin=20.0)
    found = spectra(copies).sel(circuit="OV", layer=0, head=0)
    np.testing.assert_allclose(found.singular_value[:5], [20, 20, 20, 20, 0], atol=1e-5)  # rows are centred
    np.testing.assert_allclose(found.eigenvalue[:5], [20, 20, 20, 20, 0], atol=1e-5)
    summary = copying(copies).sel(layer=0, head=0)
    assert float(summary.copying_score) == pytest.approx(1)
    np.testing.assert_array_equal(summary.own, [[1, 0], [1, 0]])
    assert summary.attrs["chance"] == 0.2
    rules_out = copying(elimination_only(), tokens=range(1, 6))
    assert float(rules_out.copying_score.sel(layer=0, head=0)) == pytest.approx(-1)
    np.testing.assert_array_equal(rules_out.own.sel(layer=0, head=0), [[0, 1], [0, 1]])
    idle = rules_out.sel(layer=0, head=1)
    assert np.isnan(idle.copying_score)
    assert not idle.own.any()


def test_a_permutation_is_no_copying():
    # cycles of length 2 and 3: eigenvalues 1, -1 and the cube roots of one; one of the two ones is lost with the mean
    found = spectra(attention_memory([1, 0, 3, 4, 2], margin=1.0)).sel(circuit="OV", layer=0, head=0)
    assert float(found.sign_score) == pytest.approx((1 - 1 - 0.5 - 0.5) / 4, abs=1e-6)
    np.testing.assert_array_equal(
        copying(attention_memory([1, 0, 3, 4, 2])).own.sel(layer=0, head=0, extreme="largest"), 0
    )


def test_own_extremes_are_those_of_the_full_circuit(monkeypatch):
    monkeypatch.setattr("mnemoscope.analyses.head_circuits.CHUNK", 4)
    model = random_model(n_layers=2, d_vocab=10)
    for tokens in (None, [7, 3, 0, 9, 4]):
        chosen = list(range(10)) if tokens is None else tokens
        matrix = centred_rows(ov_circuits(model, tokens=chosen, logits=chosen).token_logit.values)
        own = np.arange(len(chosen))
        found = copying(model, tokens=tokens).own
        for extreme, choose in (("largest", np.argmax), ("smallest", np.argmin)):
            for along, axis in (("logit", -1), ("source_token", -2)):
                expected = (choose(matrix, axis) == own).mean(-1)
                np.testing.assert_allclose(found.sel(extreme=extreme, along=along), expected)


def test_an_untrained_model_does_not_copy():
    spec = ModelSpec(d_model=32, n_heads=4, n_layers=2)
    scores = [copying(build(spec, d_vocab=60, n_ctx=8, seed=seed)) for seed in range(4)]
    every = np.concatenate([s.copying_score.values.ravel() for s in scores])
    assert abs(every.mean()) < 0.15
    assert np.abs(every).max() < 0.7
    own = np.concatenate([s.own.values.ravel() for s in scores])
    assert own.mean() < 4 / 60


def test_singular_vectors_rebuild_the_circuit():
    model = random_model(d_vocab=6, n_layers=2)
    chosen = [5, 1, 0, 3]
    for circuit, full in (
        ("OV", ov_circuits(model, tokens=chosen, logits=chosen).token_logit),
        ("QK", qk_circuits(model, tokens=chosen).token_token),
    ):
        found = singular_tokens(model, circuit=circuit, layer=1, head=1, n_vectors=4, n_tokens=4, tokens=chosen)
        total = np.zeros((4, 4))
        for vector in range(4):
            sides = [np.zeros(6), np.zeros(6)]
            for side, values in zip(found.side.values, sides, strict=True):
                here = found.sel(side=side).isel(vector=vector)
                values[here.token.values] = here.weight.values
                assert (np.diff(np.abs(here.weight.values)) <= 1e-12).all()
            assert found.weight.sel(side="left").isel(vector=vector, rank=0) > 0
            total += float(found.singular_value[vector]) * np.outer(sides[0][chosen], sides[1][chosen])
        np.testing.assert_allclose(total, centred_rows(full.sel(layer=1, head=1).values), atol=1e-10)


def test_singular_vectors_name_the_tokens_that_a_head_maps():
    model = attention_memory([2, 0, 1, 3])
    with torch.no_grad():
        model.blocks[0].attn.W_V[0, :, 0] *= 3  # the head moves token 0, to 2, most strongly
    found = singular_tokens(model, circuit="OV", layer=0, head=0, n_vectors=1, n_tokens=1).isel(vector=0, rank=0)
    assert found.token.values.tolist() == [0, 2]
    assert (found.weight > 0.8).all()


def test_large_vocabularies_stay_factored():
    model = foreign_model(d_vocab=20_000, n_layers=1, normalization_type=None)
    result = spectra(model)  # 3 GB if multiplied out
    truth = model.W_E @ model.OV @ model.W_U
    np.testing.assert_allclose(
        spectra(model, centred=False).singular_value.sel(circuit="OV"), truth.S.detach(), rtol=1e-4
    )
    assert result.singular_value.shape == (2, 1, 2, 3)
    assert same_token_affinity(model).shape == (1, 2)
    assert singular_tokens(model, circuit="QK", layer=0, head=0).token.shape == (3, 2, 10)


def test_affinities_are_means_of_the_full_circuits():
    model = random_model(n_layers=2, d_vocab=7)
    qk = qk_circuits(model)
    same, other = np.eye(7, dtype=bool), ~np.eye(7, dtype=bool)
    expected = qk.token_token.values[..., same].mean(-1) - qk.token_token.values[..., other].mean(-1)
    np.testing.assert_allclose(same_token_affinity(model), expected, atol=1e-12)
    found = offset_affinity(model)
    assert found.offset.values.tolist() == list(range(9))
    for offset in (0, 1, 4, 8):
        rows = []
        for query in range(max(1, offset), 9):
            keys = qk.pos_pos.sel(query_pos=query).values[..., : query + 1]
            others = np.delete(keys, query - offset, -1).mean(-1)
            rows.append(keys[..., query - offset] - others)
        np.testing.assert_allclose(found.sel(offset=offset), np.mean(rows, 0), atol=1e-12)
    np.testing.assert_allclose(offset_affinity(model, n_pos=5).sel(offset=[4]), rows_at(qk, query=4, offset=4))


def rows_at(qk, *, query: int, offset: int):
    keys = qk.pos_pos.sel(query_pos=query).values[..., : query + 1]
    return (keys[..., query - offset] - np.delete(keys, query - offset, -1).mean(-1))[..., None]


def test_the_previous_token_head_is_seen_in_its_affinity():
    found = offset_affinity(induction(6, 8, noise=0.02))
    assert found.sel(layer=0, head=0).argmax("offset") == 1
    assert found.sel(layer=0, head=0, offset=1) > 10
    rest = found.where((found.layer != 0) | (found["head"] != 0))
    assert abs(rest).max() < 1
    assert float(abs(same_token_affinity(induction(6, 8))).max()) == 0


def test_a_head_that_attends_to_its_like():
    model = random_model(normalization="none", d_vocab=6, n_heads=1)
    with torch.no_grad():
        model.embed.W_E.copy_(torch.eye(6, 8))
        model.blocks[0].attn.W_Q[0] = model.blocks[0].attn.W_K[0] = 3 * torch.eye(8)
    assert same_token_affinity(model).item() == pytest.approx(9 / 8**0.5)
    assert spectra(model).sign_score.sel(circuit="QK").item() == pytest.approx(1)


@pytest.mark.usefixtures("as_installed")
def test_wrong_input_is_refused():
    model = random_model(n_layers=2)
    with pytest.raises(InputError, match="basis must be one of: token, residual"):
        spectra(model, basis="position")
    with pytest.raises(InputError, match="circuit must be one of: OV, QK; got 'QV'"):
        singular_tokens(model, circuit="QV", layer=0, head=0)
    for wrong, message in (
        ({"layer": 2}, "layer must be from 0 to 1; got 2"),
        ({"head": -1}, "head must be from 0 to 1; got -1"),
        ({"n_vectors": 5}, "n_vectors must be from 1 to 4; got 5"),
        ({"n_tokens": 7}, "n_tokens must be from 1 to 6; got 7"),
    ):
        with pytest.raises(InputError, match=message):
            singular_tokens(model, **{"circuit": "OV", "layer": 0, "head": 0, "n_tokens": 2, **wrong})
    with pytest.raises(InputError, match="at least two, to be compared"):
        same_token_affinity(model, tokens=[3])
    with pytest.raises(InputError, match="n_pos must be from 2 to the model's context of 9; got 10"):
        offset_affinity(model, n_pos=10)
    rotary = foreign_model(positional_embedding_type="rotary", rotary_dim=2, d_head=4)
    with pytest.raises(InputError, match="positions that are added to the residual stream"):
        offset_affinity(rotary)
    assert spectra(rotary).sign_score.shape == (2, 2, 2)
    with pytest.raises(InputError, match="one vocabulary for input and output; it has 50 and 7 tokens"):
        copying(foreign_model(d_vocab_out=7))
    assert spectra(foreign_model(d_vocab_out=7), basis="residual").sign_score.shape == (2, 2, 2)


def test_results_can_be_saved(tmp_path):
    model = random_model(n_layers=2)
    results = spectra(model), copying(model), singular_tokens(model, circuit="QK", layer=0, head=1, n_tokens=3)
    for number, result in enumerate(results):
        result.to_netcdf(tmp_path / str(number), engine="h5netcdf")
        with xr.open_dataset(tmp_path / str(number), engine="h5netcdf") as loaded:
            xr.testing.assert_identical(loaded.load(), result)
