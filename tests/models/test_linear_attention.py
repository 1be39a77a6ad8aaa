"""Attention without a softmax, models whose embeddings stay, and tokens that are silent."""

from itertools import product

import pytest
import torch

import mnemoscope as ms
from mnemoscope import InputError, ModelSpec
from mnemoscope.models.building import build, detached_parameters, held_patterns, matching_names
from mnemoscope.models.checkpoint import load_checkpoint, save_checkpoint
from mnemoscope.training.loop import train
from tests.support import random_model, seeded, small_spec

TOKENS = torch.randint(0, 6, (5, 7), generator=seeded())


@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
def test_the_pattern_is_the_product_of_queries_and_keys(direction):
    model = random_model(softmax=False, attention_dir=direction, n_layers=2)
    logits, cache = model.run_with_cache(TOKENS)
    for layer in range(2):
        q, k, pattern, z = (cache[f"blocks.{layer}.attn.hook_{name}"] for name in ("q", "k", "pattern", "z"))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k)
        torch.testing.assert_close(pattern, scores.tril() if direction == "causal" else scores)
        expected = torch.einsum("bhqk,bkhd->bqhd", pattern, cache[f"blocks.{layer}.attn.hook_v"])
        torch.testing.assert_close(z, expected)
    model.set_use_attn_result(True)
    torch.testing.assert_close(model(TOKENS), logits)


def test_it_survives_a_checkpoint(tmp_path):
    model = random_model(softmax=False)
    save_checkpoint(model, tmp_path / "linear.safetensors")
    assert torch.equal(load_checkpoint(tmp_path / "linear.safetensors")(TOKENS), model(TOKENS))


def test_patching_it_is_the_loop_over_sites():
    model = random_model(softmax=False, n_layers=2, d_vocab=6)
    task = ms.TASKS.get("permutation-lookup")(n_values=5, repeat_ratio=0.5).for_seed(0)
    clean = task.monitor(4, split="test", generator=seeded()).select(slice(4, 8))
    corrupted = task.corrupt(clean, kind="exchange_answer", generator=seeded(1))
    pairs = ms.PromptPairs(clean=clean, corrupted=corrupted, name="exchange_answer").read_last()
    found = ms.patch(model, pairs, kind="z", over=("layer", "pos"), directions=("denoising",))
    for layer, pos in product(range(2), range(9)):
        site = ms.Site(kind="z", layer=layer, pos=pos)
        logits = ms.run_with(model, corrupted, [ms.Patch(site=site, source=ms.Named(name="clean", value=clean))])[:, -1]
        right, foil = (logits.gather(-1, of.targets[:, -1:])[:, 0] for of in (clean, corrupted))
        given = torch.tensor(found.value.sel(layer=layer, pos=pos).squeeze().values)
        torch.testing.assert_close(given.float(), (right - foil).detach(), atol=1e-5, rtol=1e-5)


def test_what_needs_a_softmax_is_refused():
    model = random_model(softmax=False)
    batch = ms.TASKS.get("permutation-lookup")().for_seed(0).sample(3, split="train", generator=seeded())
    with pytest.raises(InputError, match="attention has no softmax"):
        ms.run_with(model, batch, [ms.Knockout(site=ms.Site(kind="scores", layer=0))])
    with pytest.raises(InputError, match="attention has no softmax"):
        ms.analyses.predict_patterns(model, batch)


def test_frozen_embeddings_stay_and_a_silent_token_has_none(tmp_path):
    changes = {"model.embeddings": "frozen", "model.silent": -1, "model.initialisation": "normal"}
    spec = small_spec("d4", changes={**changes, "model.normalization": "none"})
    run = train(spec, tmp_path / "run")
    first, last = (detached_parameters(run.model(step)) for step in (0, spec.recipe.n_steps))
    stay = {name for name, value in first.items() if torch.equal(value, last[name])}
    assert stay == matching_names(held_patterns(spec.model), first)
    assert {"embed.W_E", "unembed.W_U", "pos_embed.W_pos", "blocks.0.attn.b_V"} <= stay
    assert "blocks.0.attn.b_Q" not in stay
    assert not first["embed.W_E"][-1].any()
    assert first["embed.W_E"][:-1].all()


def test_normal_weights_have_the_stated_variances():
    spec = ModelSpec(d_model=64, n_heads=8, d_head=16, d_mlp=200, initialisation="normal", normalization="none")
    weights = detached_parameters(build(spec, d_vocab=300, n_ctx=50, seed=0))
    by_width = {"W_Q": 16, "W_K": 16, "W_V": 16, "W_O": 64, "W_in": 64, "W_out": 200, "W_E": 64, "W_U": 64, "W_pos": 64}
    for name, value in weights.items():
        if (kind := name.rsplit(".", 1)[-1]) in by_width:
            assert float(value.var() * by_width[kind]) == pytest.approx(1, abs=0.05), name
        else:
            assert not value.any(), name


def test_a_one_hot_model_starts_at_almost_nothing():
    spec = ModelSpec(
        d_model=6, n_heads=1, mlp=False, softmax=False, embeddings="frozen", silent=5, initialisation="one-hot",
        normalization="none", positions=False,
    )  # fmt: skip
    model = build(spec, d_vocab=6, n_ctx=7, seed=0)
    assert torch.equal(model.W_E[:5], torch.eye(6)[:5])
    assert torch.equal(model.W_U, torch.eye(6))
    asking = torch.tensor([[0, 1, 1, 5]])
    # scores are 1e-5 each, values the embeddings, and every entry of W_O is 1e-5: (1 + 1 + 1) * 1e-10
    assert model(asking)[0, -1].tolist() == pytest.approx([3e-10] * 6, rel=1e-3)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"silent": 0}, "model.silent needs model.embeddings frozen"),
        ({"initialisation": "one-hot"}, "needs model.n_heads 1"),
    ],
)
def test_contradictions_are_refused(fields, words):
    with pytest.raises(InputError, match=words):
        ModelSpec(**fields)
