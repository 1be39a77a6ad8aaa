from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from mnemoscope.core.dictionary import Dictionary, activation_hook
from mnemoscope.core.errors import InputError
from mnemoscope.core.seeding import generator

X = torch.tensor([[1.0, 2.0], [-1.0, 0.5]])


def small(**changes) -> Dictionary:
    """Four features of a plane: pre-activations are x, y, x + y and -x."""
    fields = {
        "name": "small",
        "layer": 1,
        "reads": "mlp_in",
        "writes": "mlp_out",
        "w_enc": torch.tensor([[1.0, 0], [0, 1], [1, 1], [-1, 0]]),
        "b_enc": torch.zeros(4),
        "w_dec": torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]]),
        "b_dec": torch.tensor([0.0, 0, 10]),
    }
    return Dictionary(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [[1, 2, 3, 0], [0, 0.5, 0, 1]]),
        ({"b_enc": torch.tensor([0.0, -1, 0, 3])}, [[1, 1, 3, 2], [0, 0, 0, 4]]),
        ({"centre": torch.tensor([1.0, 0])}, [[0, 2, 2, 0], [0, 0.5, 0, 2]]),
        ({"activation": "topk", "k": 1}, [[0, 0, 3, 0], [0, 0, 0, 1]]),
        ({"activation": "topk", "k": 3}, [[1, 2, 3, 0], [0, 0.5, 0, 1]]),
        ({"activation": "groupmax", "k": 2}, [[0, 2, 3, 0], [0, 0.5, 0, 1]]),
        ({"activation": "jumprelu", "threshold": torch.tensor([1.0, 0, 2.5, 1.5])}, [[0, 2, 3, 0], [0, 0.5, 0, 0]]),
    ],
    ids=["relu", "bias", "centre", "top 1", "top 3", "groupmax", "jumprelu"],
)
def test_features_by_hand(changes, expected):
    assert torch.equal(small(**changes).encode(X), torch.tensor(expected))


def test_a_reconstruction_by_hand():
    plain, skipping = small(), small(skip=torch.tensor([[1.0, 0], [0, 0], [0, 100]]))
    assert plain.reconstruct(X).tolist() == [[1, 2, 13], [1, 1.5, 11]]
    assert skipping.reconstruct(X).tolist() == [[2, 2, 213], [0, 1.5, 61]]
    with pytest.raises(InputError, match="skip connection"):
        skipping.decode(skipping.encode(X))


def test_axes_before_the_last_are_kept():
    rows = torch.randn(2, 3, 5, 2, generator=generator(0, "rows"), dtype=torch.float32)
    for found in (small(), small(activation="topk", k=2), small(activation="groupmax", k=2)):
        assert found.reconstruct(rows).shape == (2, 3, 5, 3)
        torch.testing.assert_close(found.encode(rows)[1, 2], found.encode(rows[1, 2]))


def test_top_k_of_all_features_is_relu():
    rows = torch.randn(50, 2, generator=generator(0, "rows"), dtype=torch.float32)
    assert torch.equal(small(activation="topk", k=4).encode(rows), small().encode(rows))
    assert torch.equal(small(activation="jumprelu", threshold=torch.zeros(4)).encode(rows), small().encode(rows))


def test_equal_by_name_and_content():
    one = small()
    assert one == small()
    assert hash(one) == hash(small())
    assert one.digest == small(name="another").digest
    assert one != small(name="another")
    assert one != small(layer=0)
    assert one != small(b_dec=torch.tensor([0.0, 0, 11]))
    assert one != small(activation="topk", k=4)
    assert str(one) == f"small: 4 features of L1 mlp_in to mlp_out ({one.digest})"
    assert (one.n_features, one.d_in, one.d_out) == (4, 2, 3)
    assert one.to(dtype=torch.float64).encode(X.double()).dtype == torch.float64
    assert one.to("cpu") == one


def test_settings_and_tensors_make_it_again():
    one = small(activation="topk", k=2, centre=torch.ones(2))
    assert Dictionary(**one.settings, **one.tensors) == one


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": ""}, "name"),
        ({"layer": -1}, "layer"),
        ({"reads": "pattern"}, "reads of a dictionary must be one of: .*; got 'pattern'"),
        ({"writes": "mlp_in"}, "writes"),
        ({"reads": "resid_post"}, "comes after mlp_out: exchange"),
        ({"w_enc": torch.zeros(4)}, "w_enc of a dictionary must be a matrix"),
        ({"w_enc": torch.zeros(0, 2)}, "row a feature"),
        ({"b_enc": torch.zeros(3)}, r"b_enc of a dictionary must have shape \(4,\), .*; got \(3,\)"),
        ({"w_dec": torch.zeros(3, 3)}, r"w_dec of a dictionary must have shape \(4, 3\)"),
        ({"skip": torch.zeros(2, 3)}, r"skip of a dictionary must have shape \(3, 2\)"),
        ({"b_enc": torch.tensor([0, 0, 0, float("nan")])}, "finite"),
        ({"b_enc": torch.zeros(4, dtype=torch.long)}, "floats"),
        ({"reads": "mlp_out"}, "one width; got 2 and 3"),
        ({"activation": "gelu"}, "activation of a dictionary must be one of"),
        ({"activation": "topk"}, "activation topk needs k"),
        ({"k": 2}, "activation relu has no k"),
        ({"activation": "topk", "k": 5}, "k of a dictionary must be from 1 to 4; got 5"),
        ({"activation": "groupmax", "k": 3}, "equal groups; got 3"),
        ({"activation": "jumprelu"}, "needs threshold"),
        ({"activation": "jumprelu", "threshold": torch.tensor([0.0, 0, 0, -1])}, "at least 0"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_what_is_no_dictionary_is_refused(changes, words):
    with pytest.raises(InputError, match=words):
        small(**changes)


@pytest.mark.usefixtures("as_installed")
def test_a_changed_copy_is_checked_too():
    with pytest.raises(InputError, match="b_dec"):
        replace(small(), b_dec=torch.zeros(2))


CFG = {"n_layers": 2, "attn_only": False, "parallel_attn_mlp": False, "normalization_type": "LN"}


@pytest.mark.parametrize(
    ("kind", "changes", "hook"),
    [
        ("mlp_in", {}, "blocks.1.ln2.hook_normalized"),
        ("mlp_in", {"normalization_type": None}, "blocks.1.hook_resid_mid"),
        ("mlp_in", {"normalization_type": None, "parallel_attn_mlp": True}, "blocks.1.hook_resid_pre"),
        ("mlp_out", {}, "blocks.1.hook_mlp_out"),
        ("resid_mid", {}, "blocks.1.hook_resid_mid"),
        ("attn_out", {"attn_only": True}, "blocks.1.hook_attn_out"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_the_hook_point_of_an_activation(kind, changes, hook):
    assert activation_hook(kind, 1, SimpleNamespace(**{**CFG, **changes})) == hook


@pytest.mark.parametrize(
    ("kind", "layer", "changes", "words"),
    [
        ("z", 0, {}, "must be one of"),
        ("mlp_out", 2, {}, "from 0 to 1; got 2"),
        ("mlp_in", 0, {"attn_only": True}, "no MLP"),
        ("resid_mid", 0, {"parallel_attn_mlp": True}, "take resid_pre"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_an_activation_that_a_model_lacks_is_refused(kind, layer, changes, words):
    with pytest.raises(InputError, match=words):
        activation_hook(kind, layer, SimpleNamespace(**{**CFG, **changes}))
