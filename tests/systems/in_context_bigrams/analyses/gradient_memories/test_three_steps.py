from dataclasses import replace

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.building import build
from mnemoscope.systems.in_context_bigrams.analyses.gradient_memories.one_step import gradient, logits, tables
from mnemoscope.systems.in_context_bigrams.analyses.gradient_memories.three_steps import (
    MATRICES,
    ORDER,
    SETTINGS,
    Setting,
    three_steps,
)
from tests.support import global_generators_untouched, random_model, reads_back, seeded

TINY = Setting(n_tokens=6, length=8, width=16, n_samples=64, first_scored=2, n_recalled=6, rates=(1.0, 1.0, 1.0))


def simplified():
    """All three matrices away from zero."""
    spec = ModelSpec(
        n_layers=2, n_heads=1, d_model=16, mlp=False, normalization="none", initialisation="memories", dtype="float64"
    )
    model = build(spec, d_vocab=6, n_ctx=8, seed=1)
    for parameter in model.parameters():
        parameter.data *= 0.7
    return model


def test_compact_logits_are_those_of_the_model():
    model, tokens = simplified(), torch.randint(6, (5, 8), generator=seeded())
    rows, positions = torch.ones(5, 8).nonzero().T
    found = logits(tables(model, 8), tokens, rows, positions)
    torch.testing.assert_close(found, model(tokens)[rows, positions])


@pytest.mark.parametrize("name", MATRICES.values())
def test_compact_gradients_are_those_of_the_model(name, monkeypatch):
    monkeypatch.setattr("mnemoscope.systems.in_context_bigrams.analyses.gradient_memories.one_step.CHUNK", 7)
    model, batch = simplified(), TINY.task.sample(40, split="train", generator=seeded())
    parameter = dict(model.named_parameters())[name]
    (exact,) = torch.autograd.grad(TINY.task.loss(model(batch.inputs), batch), parameter)
    assert exact.abs().max() > 1e-5
    torch.testing.assert_close(gradient(model, parameter, batch), exact, rtol=1e-8, atol=1e-13)


def test_a_frozen_rest_changes_no_gradient():
    model, batch = simplified(), TINY.task.sample(20, split="train", generator=seeded())
    (first, *_), named = MATRICES.values(), dict(model.named_parameters())
    before = gradient(model, named[first], batch)
    for name, parameter in named.items():
        parameter.requires_grad_(name == first)
    torch.testing.assert_close(gradient(model, named[first], batch), before)


def test_keys_of_layer_2_learn_nothing_before_the_output_matrix():
    found = three_steps(seed=100, order=ORDER[::-1], setting=TINY)
    assert found.recall.sel(memory="match") == 0  # all scores tie at zero


def test_nor_do_those_of_layer_1_where_their_images_do_not_reach_the_logits():
    setting = replace(TINY, width=34, n_samples=2048)
    found = three_steps(seed=100, embeddings="orthonormal", order=ORDER[::-1], setting=setting)
    assert found.recall.values.tolist() == [1, 0, 0]


def test_a_result_is_labelled_and_the_same_again(tmp_path):
    with global_generators_untouched():
        found = three_steps(seed=100, setting=TINY)
    assert found.memory.values.tolist() == ["output", "match", "previous"]
    assert 0 <= found.accuracy <= 1
    assert found.identical(three_steps(seed=100, setting=TINY))
    assert reads_back(found, tmp_path / "found.nc")


def test_orthonormal_embeddings_have_images_of_their_own():
    setting = replace(TINY, width=34, n_samples=2048)
    found = three_steps(seed=100, embeddings="orthonormal", setting=setting)
    assert found.recall.sel(memory="output") == 1
    assert found.loss_at_start == pytest.approx(torch.tensor(6.0).log().item())  # no token is preferred


@pytest.mark.slow
def test_three_steps_with_orthonormal_embeddings_recover_the_memories():
    assert (three_steps(seed=100, embeddings="orthonormal").recall > 0.9).all()


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embeddings": "learned"}, "embeddings must be one of: random, orthonormal"),
        ({"order": ("output", "match")}, "order must name each of output, match, previous once"),
        ({"embeddings": "orthonormal"}, "width of orthonormal embeddings must be at least 34; got 16"),
    ],
)
def test_what_cannot_be_asked_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        three_steps(seed=0, setting=TINY, **changes)


@pytest.mark.usefixtures("as_installed")
def test_other_models_and_batches_are_refused():
    with pytest.raises(InputError, match="two attention-only layers of one head and no normalisation"):
        tables(random_model(n_layers=2), 4)
    batch = replace(TINY.task.sample(3, split="train", generator=seeded()), scored=torch.zeros(3, 8, dtype=torch.bool))
    with pytest.raises(InputError, match="batch must have a scored position"):
        gradient(simplified(), torch.zeros(1), batch)


def test_sizes_are_those_that_were_registered():
    assert SETTINGS["random"].width > 20 * (SETTINGS["random"].n_tokens + SETTINGS["random"].length)
    assert {setting.first_scored for setting in SETTINGS.values()} == {12}
