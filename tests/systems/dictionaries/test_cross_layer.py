"""A model with its hops in layers, and cross-layer transcoders of it."""

from functools import partial

import pytest
import torch

from mnemoscope import DictionaryRecipe
from mnemoscope.systems.dictionaries.claims.folding import apart, effects, exchange, folded
from mnemoscope.systems.dictionaries.cross_layer import train_cross_layer
from mnemoscope.systems.dictionaries.hops import N_HOPS, N_VALUES, answers, chain, passed, starting_at, varied

ALL = starting_at(*range(N_HOPS))


@pytest.fixture(scope="module")
def model():
    return chain(7)


def test_every_layer_applies_a_permutation_to_what_the_one_before_wrote(model):
    found, clean = passed(model, ALL), passed(model, starting_at(0))
    assert torch.equal(answers(model, found.last), model(ALL[:, None])[:, 0].argmax(-1))
    assert sorted(answers(model, clean.last).tolist()) == list(range(N_VALUES))
    for layer in range(N_HOPS):
        active = found.writes[layer].any(-1)
        assert active.tolist() == [token < (layer + 1) * N_VALUES for token in range(len(ALL))]
        others = clean.writes[layer].roll(1, 0)
        changed = passed(model, starting_at(0), partial(exchange, layer, others))
        assert torch.equal(answers(model, changed.last), answers(model, clean.last).roll(1, 0)), layer
    assert not torch.equal(answers(chain(8), passed(chain(8), ALL).last), answers(model, found.last))


def test_varied_rows_are_what_the_mlps_answer_to_what_they_read(model):
    rows = varied(model, 400, seed=0)
    for layer, block in enumerate(model.blocks):
        torch.testing.assert_close(block.mlp(rows.reads[layer][:, None])[:, 0], rows.writes[layer])
    stays = [
        (rows.reads[layer + 1] - rows.reads[layer] == rows.writes[layer]).all(-1)[rows.writes[layer].any(-1)]
        for layer in range(N_HOPS - 1)
    ]
    assert 0.4 < torch.cat(stays).double().mean() < 0.7


def test_transcoders_by_hand_take_the_place_of_the_mlps(model):
    whole = passed(model, ALL)
    for make, expected in ((apart, {"folded": 0, "followed": 1}), (folded, {"folded": 1, "followed": 0})):
        transcoder = make(model)
        torch.testing.assert_close(transcoder.run(whole.reads[0]), whole.last)
        assert effects(model, transcoder) == {**expected, "explained": 1}


@pytest.mark.parametrize("activation", ["relu", "topk"])
def test_a_trained_one_explains_and_writes_no_earlier_layer(model, activation):
    rows = passed(model, ALL)
    recipe = DictionaryRecipe(activation=activation, k=2, l1=0.03, n_steps=300)
    train = partial(train_cross_layer, rows.reads, rows.writes, n_features=32, recipe=recipe)
    found = train(seed=0)
    assert effects(model, found)["explained"] > 0.9
    contributions = found.contributions(rows.reads)
    assert all(not contributions[layer, :, :layer].any() for layer in range(N_HOPS))
    torch.testing.assert_close(found.w_dec.flatten(2).norm(dim=-1), torch.ones(N_HOPS, 32))
    assert torch.equal(train(seed=0).w_enc, found.w_enc)
    assert not torch.equal(train(seed=1).w_enc, found.w_enc)
    n_active = torch.stack([(found.encode(layer, read) > 0).sum(-1) for layer, read in enumerate(rows.reads)])
    assert n_active.max() <= 2 if activation == "topk" else n_active.double().mean() < 32
