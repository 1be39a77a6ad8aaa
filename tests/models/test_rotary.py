"""Rotary positions of a specification: models of both classes, checkpoints, and ensembles."""

import pytest
import torch

import mnemoscope as ms
from mnemoscope import InputError, ModelSpec
from mnemoscope.engine.architecture import MAX_ROTARY, read_transformer
from mnemoscope.models.building import build, detached_parameters
from mnemoscope.models.checkpoint import load_checkpoint, save_checkpoint
from mnemoscope.training.learner import Learner
from tests.support import seeded

FIELDS = {"d_model": 8, "n_heads": 2, "n_layers": 2, "position_kind": "rotary"}
SPEC = ModelSpec(**FIELDS)
SIZES = {"d_vocab": 6, "n_ctx": 9}
TOKENS = torch.randint(0, 6, (7, 9), generator=seeded())


@pytest.mark.parametrize("fields", [{"positions": False}, {"softmax": False}, {"d_head": 3}])
def test_what_rotary_positions_need(fields):
    with pytest.raises(InputError, match=r"model.position_kind rotary needs"):
        ModelSpec(**{**FIELDS, **fields})


def test_longer_inputs_than_the_table_are_refused():
    with pytest.raises(InputError, match=f"must be from 1 to {MAX_ROTARY}"):
        build(SPEC, d_vocab=6, n_ctx=MAX_ROTARY + 1, seed=0)


def test_both_classes_agree_and_positions_matter_by_their_distance_only():
    one, own = (build(SPEC, **SIZES, seed=1, own=own) for own in (False, True))
    assert "pos_embed.W_pos" not in dict(one.named_parameters())
    torch.testing.assert_close(one(TOKENS), own(TOKENS), atol=1e-6, rtol=1e-6)
    assert not isinstance(read_transformer(one), str)
    scores = []
    for start in (0, 3):
        tokens = torch.cat((torch.full((1, start), 5), torch.tensor([[1, 2, 3]])), 1)
        scores.append(one.run_with_cache(tokens)[1]["blocks.0.attn.hook_attn_scores"][0, :, -1, -3:])
    torch.testing.assert_close(scores[0], scores[1], atol=1e-5, rtol=1e-5)


def test_vectors_are_read_too():
    model = build(SPEC, d_vocab=4, n_ctx=9, d_output=3, seed=0)
    vectors = torch.randn(2, 9, 4, generator=seeded(), dtype=torch.float32)
    assert model(vectors).shape == (2, 9, 3)


def test_a_checkpoint_keeps_them(tmp_path):
    model = build(SPEC, **SIZES, seed=1)
    save_checkpoint(model, tmp_path / "model.safetensors")
    assert torch.equal(load_checkpoint(tmp_path / "model.safetensors")(TOKENS), model(TOKENS))


def test_an_ensemble_is_its_members():
    models = [build(SPEC, **SIZES, seed=seed) for seed in (1, 2)]
    learner = Learner(SPEC, ms.Recipe(), [detached_parameters(model) for model in models], [{}, {}])
    given = learner.evaluate(TOKENS.expand(2, -1, -1), torch.tensor([3, 8]))
    for found, model in zip(given, models, strict=True):
        torch.testing.assert_close(found, model(TOKENS)[:, [3, 8]], atol=1e-5, rtol=1e-5)
