"""From a hooked model to the engine's transformer: what is kept, what is noticed, what is refused."""

import pytest
import torch

from mnemoscope.engine import architecture, lookup
from mnemoscope.engine.architecture import hooked_points, read_transformer
from mnemoscope.engine.transformer import Transformer
from tests.support import foreign_model, random_model, seeded

TOKENS = torch.randint(0, 50, (3, 7), generator=seeded())


@pytest.fixture(autouse=True)
def kept(monkeypatch):
    """Weights that are laid out anew are kept however few they are."""
    monkeypatch.setattr(architecture, "_KEPT_FROM", 0)


def weights_of(model) -> Transformer:
    found = read_transformer(model)
    assert not isinstance(found, str)
    return found


def test_what_is_laid_out_is_kept_as_long_as_the_weights_stay():
    model = foreign_model()
    assert weights_of(model) is weights_of(model)


@torch.no_grad()
@pytest.mark.parametrize("name", ["W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V", "W_O"])
@pytest.mark.parametrize("how", ["in place", "through .data", "swapped through .data", "another parameter"])
def test_changed_weights_are_noticed_however_they_change(name, how):
    model = foreign_model()
    before, attn = weights_of(model)(TOKENS), model.blocks[1].attn
    weight = getattr(attn, name)
    slope = torch.linspace(0, 1, weight[0].numel()).view_as(weight[0])
    match how:
        case "in place":
            weight[0] += slope
        case "through .data":
            weight.data[0] += slope
        case "swapped through .data":
            weight.data[:] = weight.data.flip(0)
        case _:
            setattr(attn, name, torch.nn.Parameter(weight * 2))
    found = weights_of(model)(TOKENS)
    if name != "b_K":  # which adds the same to all scores of a query
        assert not torch.allclose(found, before, atol=1e-4)
    torch.testing.assert_close(found, model(TOKENS), atol=1e-5, rtol=1e-5)


def test_a_model_is_tried_once_for_the_weights_that_it_has(monkeypatch):
    tried, reproduces = [], architecture._reproduces
    monkeypatch.setattr(architecture, "_reproduces", lambda *args: tried.append(1) or reproduces(*args))
    model = random_model()
    read_transformer(model)
    read_transformer(model)
    assert len(tried) == 1
    with torch.no_grad():
        model.blocks[0].attn.W_O *= 2
    read_transformer(model)
    assert len(tried) == 2


def test_a_window_is_for_attention_that_looks_back_only():
    local = {"use_local_attn": True, "window_size": 2, "attn_types": ["local", "local"]}
    for direction in ("causal", "bidirectional"):
        model = foreign_model(attention_dir=direction, **local)
        torch.testing.assert_close(weights_of(model)(TOKENS), model(TOKENS), atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"parallel_attn_mlp": True},
        {"attn_only": True},
        {"attention_dir": "bidirectional"},
        {"gated_mlp": True, "normalization_type": "RMS"},
        {"use_local_attn": True, "window_size": 2, "attn_types": ["local", "global"]},
        {"attn_scores_soft_cap": 2.0},
        {"n_key_value_heads": 1},
    ],
    ids=str,
)
def test_a_first_layer_from_tables_gives_the_models_own_logits(n_layers, changes):
    model = foreign_model(n_layers=n_layers, d_vocab=6, n_ctx=8, **changes)
    tokens = torch.randint(0, 6, (20, 8), generator=seeded())
    torch.testing.assert_close(weights_of(model)(tokens), model(tokens), atol=1e-5, rtol=1e-5)


def test_a_model_is_tried_with_the_tables_that_serve_it(monkeypatch):
    model = foreign_model(d_vocab=6, n_ctx=8)
    monkeypatch.setattr(
        lookup.LookupTables, "after_attention", lambda cells, inputs, read: cells.stream[cells.cell_numbers(inputs)]
    )
    assert read_transformer(model) == "its forward pass is a different one"


@pytest.mark.parametrize("part", ["unembed", "blocks.0.attn", "blocks.1.mlp"])
def test_a_part_with_another_forward_pass_is_noticed(part):
    model = foreign_model()
    module = model.get_submodule(part)
    whole = module.forward
    module.forward = lambda *args, **kwargs: 2 * whole(*args, **kwargs)
    assert read_transformer(model) == "its forward pass is a different one"


def test_a_model_is_tried_without_the_hooks_that_it_carries():
    model = foreign_model()
    whole = model.unembed.forward
    model.add_hook("blocks.0.hook_resid_pre", lambda stream, hook: 0 * stream)
    assert isinstance(read_transformer(model), Transformer)
    other = foreign_model()
    other.add_hook("blocks.0.hook_resid_pre", lambda stream, hook: stream)
    other.unembed.__class__ = type("Doubled", (type(other.unembed),), {"forward": lambda self, x: 2 * whole(x)})
    assert read_transformer(other) == "its forward pass is a different one"
    assert len(model.hook_dict["blocks.0.hook_resid_pre"].fwd_hooks) == 1
    assert not model(TOKENS).equal(foreign_model()(TOKENS)), "hooks are on the model as before"


def test_a_part_of_another_class_is_noticed():
    model = foreign_model()

    class Doubled(type(model.unembed)):
        def forward(self, residual):
            return 2 * super().forward(residual)

    assert isinstance(read_transformer(model), Transformer)
    model.unembed.__class__ = Doubled
    assert read_transformer(model) == "its forward pass is a different one"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"positional_embedding_type": "alibi"}, "positional_embedding_type is alibi"),
        ({"clip_qkv": 1.0}, "clip_qkv is 1.0"),
        ({"act_fn": "solu_ln"}, "act_fn is solu_ln"),
        ({"dtype": "float16"}, "dtype is torch.float16"),
    ],
)
def test_reasons_name_the_field(changes, reason):
    assert read_transformer(foreign_model(**changes)) == reason


@torch.no_grad()
@pytest.mark.parametrize("changes", [{}, {"normalization_type": "RMS", "gated_mlp": True, "act_fn": "silu"}])
def test_bfloat16_is_computed_and_another_model_noticed(changes):
    model = foreign_model(dtype="bfloat16", **changes)
    given = model(TOKENS)
    found = weights_of(model)(TOKENS)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, given, atol=0.06 * given.abs().max().item(), rtol=0)
    whole = model.unembed.forward
    model.unembed.forward = lambda residual: 2 * whole(residual)
    assert read_transformer(model) == "its forward pass is a different one"


def test_hooks_are_found_where_they_are():
    model = random_model()
    assert hooked_points(model) == frozenset()
    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_z", lambda z, hook: z)]):
        assert hooked_points(model) == {"blocks.0.attn.hook_z"}
    handle = model.blocks[0].mlp.register_forward_hook(lambda *_: None)
    assert hooked_points(model) is None
    handle.remove()
    assert hooked_points(model) == frozenset()
