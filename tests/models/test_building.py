import math
from itertools import product

import pytest
import torch

from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.building import build, configuration, detached_parameters, zero_patterns
from tests.support import global_generators_untouched


def small(*, seed: int = 0, **fields):
    return build(ModelSpec(**{"d_model": 8, "n_heads": 2, **fields}), d_vocab=6, n_ctx=9, seed=seed)


def test_a_seed_decides_the_weights():
    first, again, other = detached_parameters(small()), detached_parameters(small()), detached_parameters(small(seed=1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embed.W_E"], other["embed.W_E"])


@pytest.mark.parametrize(("mlp", "writes"), [(True, 6), (False, 3)])
def test_gpt2_scaled_differs_from_gpt2_in_what_is_written_to_the_residual_stream(mlp, writes):
    usual = detached_parameters(small(mlp=mlp, n_layers=3))
    scaled = detached_parameters(small(mlp=mlp, n_layers=3, initialisation="gpt2-scaled"))
    for name, value in scaled.items():
        expected = usual[name] / math.sqrt(writes) if name.endswith(("W_O", "W_out")) else usual[name]
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)


def test_the_global_generators_are_left_alone():
    with global_generators_untouched():
        small()


@pytest.mark.parametrize(
    ("fields", "pattern"), [({"attention": False}, "attn"), ({"positions": False}, "pos_embed"), ({}, None)]
)
def test_what_is_switched_off_is_zero_and_nothing_else_is(fields, pattern):
    for name, value in detached_parameters(small(**fields)).items():
        if pattern and pattern in name:
            assert not value.any(), name
        elif ".W_" in name:
            assert value.all(), name
    assert bool(zero_patterns(ModelSpec(**fields))) == bool(pattern)


@pytest.mark.parametrize(
    ("normalization", "mlp", "dtype"), product(["LN", "none"], [True, False], ["float32", "float64"])
)
def test_the_architecture_is_the_specified_one(normalization, mlp, dtype):
    model = small(normalization=normalization, mlp=mlp, dtype=dtype, n_layers=2, d_mlp=5)
    names = set(detached_parameters(model))
    assert ("blocks.1.mlp.W_in" in names) == mlp
    assert ("ln_final.w" in names) == (normalization == "LN")
    assert {value.dtype for value in model.parameters()} == {getattr(torch, dtype)}
    assert (model.cfg.n_layers, model.cfg.d_head, model.cfg.n_ctx, model.cfg.d_vocab) == (2, 4, 9, 6)
    assert not mlp or model.W_in.shape == (2, 8, 5)


def test_parameters_are_copies_without_buffers():
    model = small()
    copies = detached_parameters(model)
    copies["embed.W_E"].zero_()
    assert model.W_E.any()
    assert not any("mask" in name or "IGNORE" in name for name in copies)


def test_the_configuration_is_plain_data():
    assert configuration(ModelSpec(mlp=False, normalization="none"), d_vocab=6, n_ctx=9) == {
        "n_layers": 1,
        "d_model": 32,
        "n_heads": 2,
        "d_head": 16,
        "d_mlp": None,
        "attn_only": True,
        "act_fn": "relu",
        "normalization_type": None,
        "n_ctx": 9,
        "d_vocab": 6,
        "dtype": "float32",
    }


def memory(*, seed: int = 0, **fields):
    spec = ModelSpec(d_model=64, n_heads=1, n_layers=2, normalization="none", initialisation="memories", **fields)
    return build(spec, d_vocab=50, n_ctx=40, seed=seed)


def test_associative_memories_start_as_the_paper_says():
    model = memory(act_fn="identity", first_mlp=1, d_mlp=64)
    assert torch.equal(model.W_Q[:, 0], torch.eye(64).expand(2, -1, -1))
    for embedding in (model.W_E, model.W_pos):
        assert embedding.mean().item() == pytest.approx(0, abs=0.05)
        assert embedding.std().item() == pytest.approx(1, abs=0.05)
    for weight in (model.W_K, model.W_V, model.W_O, model.W_in[1], model.W_U):
        assert weight.abs().max() <= 1 / 8
        assert weight.std().item() == pytest.approx(1 / 8 / 3**0.5, rel=0.05)
    biases = [value for name, value in detached_parameters(model).items() if ".b_" in name]
    assert biases
    assert not any(value.any() for value in biases)
    assert not torch.equal(model.W_K, memory(seed=1, act_fn="identity").W_K)


def test_layers_before_the_first_mlp_have_none_and_the_identity_makes_it_linear():
    model = memory(act_fn="identity", first_mlp=1, d_mlp=64)
    assert not model.W_in[0].any()
    assert not model.W_out[0].any()
    x = torch.randn(2, 3, 64)
    torch.testing.assert_close(model.blocks[1].mlp(x), x @ model.W_in[1] @ model.W_out[1], atol=1e-4, rtol=1e-4)
