from itertools import product

import pytest
import torch

from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.build import build, configuration, parameters, zeroed
from tests.support import global_generators_untouched


def small(*, seed: int = 0, **fields):
    return build(ModelSpec(**{"d_model": 8, "n_heads": 2, **fields}), d_vocab=6, n_ctx=9, seed=seed)


def test_a_seed_decides_the_weights():
    first, again, other = parameters(small()), parameters(small()), parameters(small(seed=1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embed.W_E"], other["embed.W_E"])


def test_the_global_generators_are_left_alone():
    with global_generators_untouched():
        small()


@pytest.mark.parametrize(
    ("fields", "pattern"), [({"attention": False}, "attn"), ({"positions": False}, "pos_embed"), ({}, None)]
)
def test_what_is_switched_off_is_zero_and_nothing_else_is(fields, pattern):
    for name, value in parameters(small(**fields)).items():
        if pattern and pattern in name:
            assert not value.any(), name
        elif ".W_" in name:
            assert value.all(), name
    assert bool(zeroed(ModelSpec(**fields))) == bool(pattern)


@pytest.mark.parametrize(
    ("normalization", "mlp", "dtype"), product(["LN", "none"], [True, False], ["float32", "float64"])
)
def test_the_architecture_is_the_specified_one(normalization, mlp, dtype):
    model = small(normalization=normalization, mlp=mlp, dtype=dtype, n_layers=2, d_mlp=5)
    names = set(parameters(model))
    assert ("blocks.1.mlp.W_in" in names) == mlp
    assert ("ln_final.w" in names) == (normalization == "LN")
    assert {value.dtype for value in model.parameters()} == {getattr(torch, dtype)}
    assert (model.cfg.n_layers, model.cfg.d_head, model.cfg.n_ctx, model.cfg.d_vocab) == (2, 4, 9, 6)
    assert not mlp or model.W_in.shape == (2, 8, 5)


def test_parameters_are_copies_without_buffers():
    model = small()
    copies = parameters(model)
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
