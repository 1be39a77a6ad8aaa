"""Families of prompt pairs: what a pair differs in, what a draw and a wording change, and what stays."""

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.systems.language_models import constructed
from mnemoscope.systems.language_models.families import FAMILIES
from mnemoscope.systems.language_models.words import GENERIC, NAMES, NOTHING, PLACES

KNOWN = {name for of in NAMES.values() for name in of}


@pytest.fixture(scope="module")
def model():
    return constructed.untrained(0)["model"]


def names(symbols):
    return [word for word in symbols if word in KNOWN]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_draws_the_same_pairs_again_and_another_one_draws_others(family, model):
    one, again, other = (FAMILIES[family].draw(model, 6, seed) for seed in (1, 1, 2))
    assert len(one) == 6
    assert torch.equal(one.clean.inputs, again.clean.inputs)
    assert one.clean.inputs.tolist() != other.clean.inputs.tolist()
    assert not (one.answer == one.foil)[one.scored].any()


@pytest.mark.parametrize("family", ["facts", "conflicts"])
def test_a_fixed_list_gives_each_pair_at_most_once(family, model):
    pairs = FAMILIES[family].draw(model, 20, 0)
    assert len({tuple(row) for row in pairs.clean.inputs.tolist()}) == 20
    with pytest.raises(InputError, match="n must be from 1 to"):
        FAMILIES[family].draw(model, 1000, 0)


def test_a_wording_tells_the_same_names_with_the_same_answers_in_another_story(model):
    family = FAMILIES["names"]
    usual, other = family.draw(model, 8, 3), family.wordings["talking"](model, 8, 3)
    for side in ("clean", "corrupted"):
        told, retold = (getattr(pairs, side).symbols for pairs in (usual, other))
        assert [names(row) for row in told] == [names(row) for row in retold]
        assert all(list(one) != list(two) for one, two in zip(told, retold, strict=True))
    assert usual.answer[usual.scored].tolist() == other.answer[other.scored].tolist()
    assert usual.foil[usual.scored].tolist() == other.foil[other.scored].tolist()


def test_both_sides_of_a_conflict_differ_in_the_word_after_the_preposition_alone(model):
    pairs = FAMILIES["conflicts"].draw(model, 10, 0)
    for told, silent, answer, foil in zip(
        pairs.clean.symbols,
        pairs.corrupted.symbols,
        pairs.answer[pairs.scored].tolist(),
        pairs.foil[pairs.scored].tolist(),
        strict=True,
    ):
        ((said, nothing),) = [(one, two) for one, two in zip(told, silent, strict=True) if one != two]
        assert (said, nothing) == (model.tokenizer.decode([answer]), NOTHING[PLACES])
        assert model.tokenizer.decode([foil]) == GENERIC
