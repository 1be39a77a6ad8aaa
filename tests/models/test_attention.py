"""Attention with padding that nobody attends to, mixed with a constant, or with vectors of distances."""

import math
from functools import partial

import pytest
import torch

import mnemoscope as ms
from mnemoscope import InputError, ModelSpec
from mnemoscope.core.protocols import attention_mix, masked_token
from mnemoscope.engine.architecture import read_transformer, resumable_transformer
from mnemoscope.engine.changes import Changes
from mnemoscope.models.attention import run_from_layer
from mnemoscope.models.building import (
    build,
    configuration,
    fold_normalisation,
    from_configuration,
    held_patterns,
    matching_names,
)
from mnemoscope.models.checkpoint import load_checkpoint, save_checkpoint
from mnemoscope.models.export import obstacles
from mnemoscope.training.learner import Learner
from tests.support import perturbed, random_model, seeded

PAD = 5
KINDS = {
    "masked": {"masked": -1},
    "mixed": {"attention_mix": 0.3},
    "constant": {"attention_mix": 0.0},
    "both": {"masked": PAD, "attention_mix": 0.6},
    "linear": {"masked": PAD, "softmax": False},
    "relative": {"masked": PAD, "position_kind": "relative"},
    "relative and linear": {"softmax": False, "position_kind": "relative"},
}
TOKENS = torch.randint(0, 6, (7, 8), generator=seeded())
TOKENS[0, 5:] = PAD
TOKENS[1] = PAD  # no query of this row sees a key
TOKENS[2, 0] = PAD  # a causal query that sees no key


BOTH_WAYS = [
    (kind, way) for kind in KINDS for way in ("causal", "bidirectional") if "relative" not in kind or way == "causal"
]


def own_model(**changes):
    spec = ModelSpec(**{"d_model": 8, "n_heads": 2, **changes})
    model = from_configuration(configuration(spec, d_vocab=6, n_ctx=9), own=True)
    model.load_state_dict(random_model(**changes).state_dict())
    return model


def plain(model, tokens, *, mix: float, masked: int | None, causal: bool, linear: bool):
    """Logits of a model without normalisation, one query and head after another."""
    stream = model.W_E[tokens] + model.W_pos[: tokens.shape[1]]
    for block in model.blocks:
        attn, added = block.attn, torch.zeros_like(stream) + block.attn.b_O
        for row in range(len(tokens)):
            for head in range(2):
                q, k, v = (stream[row] @ getattr(attn, f"W_{n}")[head] + getattr(attn, f"b_{n}")[head] for n in "QKV")
                for query in range(tokens.shape[1]):
                    keys = [key for key in range(tokens.shape[1]) if tokens[row, key] != masked]
                    keys = [key for key in keys if key <= query or not causal]
                    carried = {key: k[key] if attn.W_rel is None else k[key] + attn.W_rel[query - key] for key in keys}
                    scale = 1 if linear else math.sqrt(len(q[0]))
                    scores = [float(q[query] @ carried[key]) / scale for key in keys]
                    total = sum(math.exp(score) for score in scores)
                    for key, score in zip(keys, scores, strict=True):
                        weight = score if linear else mix * math.exp(score) / total + 1 - mix
                        added[row, query] += weight * v[key] @ attn.W_O[head]
        stream = stream + added
        stream = stream + torch.relu(stream @ block.mlp.W_in + block.mlp.b_in) @ block.mlp.W_out + block.mlp.b_out
    return stream @ model.W_U + model.b_U


@torch.no_grad()
@pytest.mark.parametrize(("kind", "direction"), BOTH_WAYS)
@pytest.mark.parametrize("make", [random_model, own_model])
def test_it_is_the_plain_computation(make, kind, direction):
    fields = {**KINDS[kind], "attention_dir": direction, "n_layers": 2, "normalization": "none", "dtype": "float64"}
    model = make(**fields)
    spec = ModelSpec(d_model=8, n_heads=2, **fields)
    masked = None if spec.masked is None else PAD
    if "relative" in kind:
        assert not model.W_pos.any()
        assert model.blocks[1].attn.W_rel.all()
    expected = plain(
        model, TOKENS, mix=spec.attention_mix, masked=masked, causal=direction == "causal", linear=not spec.softmax
    )
    assert expected.isfinite().all()
    torch.testing.assert_close(model(TOKENS), expected, atol=1e-9, rtol=1e-9)
    found = read_transformer(model)
    assert not isinstance(found, str)
    torch.testing.assert_close(found(TOKENS), expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("make", [random_model, own_model])
def test_hooks_see_minus_infinity_and_the_pattern_that_is_used(make):
    model = make(**KINDS["both"], attention_dir="bidirectional", n_layers=2)
    _, cache = model.run_with_cache(TOKENS)
    hidden = (TOKENS == PAD)[:, None, None]
    for layer in range(2):
        scores, pattern, v, z = (
            cache[f"blocks.{layer}.attn.hook_{name}"] for name in ("attn_scores", "pattern", "v", "z")
        )
        assert torch.equal(scores == -math.inf, hidden.expand_as(scores))
        mixed = 0.6 * scores.softmax(-1).nan_to_num() + 0.4 * ~hidden
        torch.testing.assert_close(pattern, mixed)
        torch.testing.assert_close(z, torch.einsum("bhqk,bkhd->bqhd", pattern, v))
    found = read_transformer(model)
    assert not isinstance(found, str)
    seen = {}
    names = [f"blocks.{layer}.attn.hook_{name}" for layer in range(2) for name in ("attn_scores", "pattern")]
    found.observe(TOKENS, Changes({name: lambda x, name=name: seen.update({name: x}) for name in names}))
    for name in names:
        torch.testing.assert_close(seen[name], cache[name], atol=1e-6, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("make", [random_model, own_model])
def test_padding_changes_nothing(make):
    model = make(masked=PAD, attention_dir="bidirectional", n_layers=3)
    tokens = TOKENS[3:] % 5
    padded = torch.cat((tokens[:, :6], torch.full((len(tokens), 2), PAD)), 1)
    torch.testing.assert_close(model(padded)[:, :6], model(tokens[:, :6]), atol=1e-6, rtol=1e-5)
    unmasked = make(attention_dir="bidirectional", n_layers=3)
    assert not torch.allclose(unmasked(padded)[:, :6], model(padded)[:, :6], atol=1e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_exact_also_where_a_query_sees_nothing(kind):
    model = random_model(**KINDS[kind], n_layers=2, dtype="float64")
    spec = ModelSpec(d_model=8, n_heads=2, n_layers=2, dtype="float64", **KINDS[kind])
    model(TOKENS).square().sum().backward()
    expected = {name: value.grad for name, value in model.named_parameters()}
    weights = {name: value.detach() for name, value in model.named_parameters()}
    places = torch.arange(8)
    for n_runs in (1, 2):  # as one run, and as several under vmap
        learner = Learner(spec, ms.Recipe(), [weights] * n_runs, [{}] * n_runs)
        outputs = learner._forward(torch.stack([TOKENS] * n_runs), places, None)
        outputs.square().sum().backward()
        for name, value in learner._params.items():
            assert value.grad is not None
            for grad in [value.grad] if n_runs == 1 else value.grad:
                torch.testing.assert_close(grad, expected[name], atol=1e-8, rtol=1e-8)


def test_it_survives_a_checkpoint_and_a_copy(tmp_path):
    model = random_model(**KINDS["both"])
    save_checkpoint(model, tmp_path / "both.safetensors")
    loaded = load_checkpoint(tmp_path / "both.safetensors")
    assert torch.equal(loaded(TOKENS), model(TOKENS))
    assert (attention_mix(loaded), masked_token(loaded)) == (0.6, PAD)
    own = load_checkpoint(tmp_path / "both.safetensors", own=True)
    torch.testing.assert_close(own(TOKENS), model(TOKENS))


@torch.no_grad()
def test_vectors_of_distances_survive_a_checkpoint_and_folding(tmp_path):
    model = random_model(position_kind="relative", n_layers=2)
    save_checkpoint(model, tmp_path / "relative.safetensors")
    for own in (False, True):
        loaded = load_checkpoint(tmp_path / "relative.safetensors", own=own)
        torch.testing.assert_close(loaded(TOKENS), model(TOKENS))
        torch.testing.assert_close(fold_normalisation(loaded)(TOKENS), model(TOKENS), atol=1e-5, rtol=1e-4)
        assert torch.equal(loaded.blocks[1].attn.W_rel, model.blocks[1].attn.W_rel)


def test_patches_and_edges_by_the_engine_are_those_by_hooks():
    model = random_model(position_kind="relative", n_layers=2)
    clean, corrupted = (ms.Batch(inputs=t, targets=t, scored=t >= 0) for t in (TOKENS, TOKENS.flip(0)))
    pairs = ms.PromptPairs(clean=clean, corrupted=corrupted, name="turned")

    def compare(measure):
        one, other = measure(method="stream").value, measure(method="hooks").value
        assert float(abs(one - other).max()) < 1e-5
        assert float(abs(one - one.mean()).max()) > 1e-3

    for kind in ("k", "q", "z", "pattern"):
        compare(partial(ms.patch, model, pairs, kind=kind, over=("layer", "head")))
    compare(partial(ms.patch, model, pairs, kind="resid_pre", over=("layer", "pos")))
    compare(partial(ms.patch_edges, model, pairs))


def test_a_run_from_a_layer_knows_the_padding():
    model = random_model(masked=PAD, n_layers=2)
    logits, (_, cache) = model(TOKENS), model.run_with_cache(TOKENS)
    model(TOKENS % 5)  # other tokens come between
    stream = cache["blocks.1.hook_resid_pre"]
    found = run_from_layer(model, 1, TOKENS)(torch.cat((stream, stream)))
    assert torch.equal(found, torch.cat((logits, logits)))
    places = cache["blocks.1.hook_resid_post"][:, :1]
    assert torch.equal(run_from_layer(model, 2, TOKENS[:0])(places), logits[:, :1])


def test_what_cannot_be_is_refused_in_a_line():
    spec = ModelSpec(d_model=8, masked=6)
    with pytest.raises(InputError, match=r"model.masked must be from -6 to 5; got 6"):
        build(spec, d_vocab=6, n_ctx=9, seed=0)
    with pytest.raises(InputError, match=r"model.masked is a token, and this task has vectors; got 6"):
        build(spec, d_vocab=6, n_ctx=9, d_output=2, seed=0)
    with pytest.raises(InputError, match=r"model.attention_mix below 1 needs model.softmax true"):
        ModelSpec(attention_mix=0.5, softmax=False)
    with pytest.raises(InputError, match="model must have patterns that add up to one to be folded"):
        fold_normalisation(random_model(attention_mix=0.5))
    assert "leaves out a token" in str(resumable_transformer(random_model(masked=0), 8))
    assert "it masks a token" in obstacles(random_model(masked=0))
    assert "its positions are relative" in obstacles(random_model(position_kind="relative"))
    with pytest.raises(InputError, match=r"model.position_kind relative needs model.positions true and"):
        ModelSpec(position_kind="relative", attention_dir="bidirectional")
    batch = ms.Batch(inputs=TOKENS, targets=TOKENS, scored=TOKENS >= 0)
    with pytest.raises(InputError, match=r"the model's positions are relative: not added to the residual stream"):
        ms.analyses.predict_patterns(random_model(position_kind="relative"), batch)
    assert "its attention is mixed with a constant" in obstacles(random_model(attention_mix=0))


def test_weights_by_width_have_the_stated_variances():
    spec = ModelSpec(d_model=64, n_heads=8, d_head=16, d_mlp=200, initialisation="by-width", normalization="none")
    model = build(spec, d_vocab=300, d_vocab_out=250, n_ctx=50, seed=0)
    by_width = dict.fromkeys(("W_Q", "W_K", "W_V", "W_O", "W_in", "W_E", "W_pos"), 64) | {"W_out": 200, "W_U": 250}
    for name, value in model.named_parameters():
        if (kind := name.rsplit(".", 1)[-1]) in by_width:
            assert float(value.detach().var() * by_width[kind]) == pytest.approx(1, abs=0.06), name
        else:
            assert not value.any(), name
    normalised = build(ModelSpec(d_model=8, n_heads=2, initialisation="by-width"), d_vocab=6, n_ctx=9, seed=0)
    assert dict(normalised.named_parameters())["ln_final.w"].eq(1).all()


def test_small_weights_have_the_stated_deviations():
    spec = ModelSpec(d_model=64, n_heads=2, initialisation="small", position_kind="relative")
    model = build(spec, d_vocab=300, n_ctx=200, seed=0)
    for name, value in model.named_parameters():
        kind = name.rsplit(".", 1)[-1]
        wanted = 0.0 if kind[0] == "b" or kind == "W_pos" else 0.01 if kind in ("W_O", "W_out") else 0.02
        if kind != "w":
            assert float(value.detach().std()) == pytest.approx(wanted, rel=0.05), name


def test_biases_outside_of_the_mlp_stay_at_zero():
    spec = ModelSpec(d_model=8, n_heads=2, initialisation="by-width")
    model = perturbed(build(spec, d_vocab=6, n_ctx=9, seed=0), spec=spec)
    held = matching_names(held_patterns(spec), dict(model.named_parameters()))
    assert held == {"unembed.b_U", *(f"blocks.0.attn.b_{name}" for name in "QKVO")}
