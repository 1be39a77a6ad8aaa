"""The questions, with a tokenizer of whole words and with models of three architectures."""

from itertools import pairwise

import pytest
import torch

import mnemoscope as ms
from mnemoscope.systems.language_models import constructed, prompts
from mnemoscope.systems.language_models.prompts import CONFLICT, FACTS, GLOBAL, LOCAL, NAMES, STORIES, ordinary
from tests.language_models import SPECIAL, WORDS, save


@pytest.fixture(scope="module")
def model():
    return constructed.untrained(0)["model"]


def test_words_are_repeated_and_foils_stand_in_the_sequence_and_are_not_due(model):
    batch = prompts.repeated(model, n=5, seed=0)
    assert batch.inputs.shape == (5, 2 * prompts.LENGTH)
    assert torch.equal(batch.inputs[:, : prompts.LENGTH], batch.inputs[:, prompts.LENGTH :])
    foils = prompts.other_words(batch, seed=0)
    assert not (foils == batch.targets)[batch.scored].any()
    assert all(set(foil.tolist()) <= set(row.tolist()) for foil, row in zip(foils, batch.inputs, strict=True))
    assert torch.equal(foils, prompts.other_words(batch, seed=0))


def test_ordinary_tokens_are_words_and_never_special(tmp_path):
    small = ms.language_model(save("llama", tmp_path))
    words = [small.tokenizer.convert_ids_to_tokens(token) for token in ordinary(small.tokenizer, small.cfg.d_vocab)]
    assert words == [word for word in WORDS if len(word) >= 3 and word.isalpha()]
    batch = prompts.repeated(small, n=3, seed=0)
    assert batch.inputs[:, 0].tolist() == [SPECIAL.index("<bos>")] * 3
    assert set(batch.inputs[0, 1:].tolist()) <= set(ordinary(small.tokenizer, small.cfg.d_vocab))


def test_a_fact_and_its_partner_have_one_length_and_two_answers(model):
    pairs = prompts.facts(model)
    n_facts = sum(len(of) for of in FACTS.values())
    assert len(pairs) == n_facts
    at_last = pairs.scored
    assert not (pairs.answer == pairs.foil)[at_last].any()
    last_of_subject = [row[int(pos)] for row, pos in zip(pairs.clean.symbols, pairs.clean.latents["S"], strict=True)]
    assert last_of_subject[:3] == ["France", "Italy", "Spain"]
    assert "Korea" in last_of_subject
    assert torch.equal(pairs.clean.latents["S"], pairs.corrupted.latents["S"])


def test_in_stories_the_name_that_is_said_once_is_due(model):
    pairs = prompts.givers(model, n=16, seed=3)
    for row, (symbols, answer) in enumerate(zip(pairs.clean.symbols, pairs.answer[pairs.scored].tolist(), strict=True)):
        due = model.tokenizer.decode([answer])
        names = [word for word in symbols if word in NAMES]
        assert sorted(map(names.count, set(names))) == [1, 2]
        assert names.count(due) == 1
        assert symbols[int(pairs.clean.latents["IO"][row])] == due
        first, again = (symbols[int(pairs.clean.latents[place][row])] for place in ("S1", "S"))
        assert first == again == model.tokenizer.decode([int(pairs.foil[pairs.scored][row])])
    assert pairs.clean.latents["story"].tolist() == [i % len(STORIES) for i in range(16)]
    firsts = (pairs.clean.latents["IO"] < pairs.clean.latents["S1"]).tolist()
    assert firsts == [i // len(STORIES) % 2 == 0 for i in range(16)]


def test_a_third_name_says_nothing_of_who_is_due(model):
    pairs = prompts.givers(model, n=8, seed=3, apart=True)
    for symbols in pairs.clean.symbols:
        names = [word for word in symbols if word in NAMES]
        assert len(set(names)) == len(names) == 3


def test_words_have_one_successor_in_the_text_and_another_elsewhere(model):
    here, plain = prompts.conflicts(model)
    assert len(here) == len(plain) == len(GLOBAL)
    assert CONFLICT.count("{A}") == 3
    for i, word in enumerate(GLOBAL):
        said = here.symbols[i][: int(here.known_lengths[i])]
        assert said[-1] == word
        follow = {after for before, after in pairwise(said) if before == word}
        assert follow == {LOCAL[i % len(LOCAL)]}
        assert follow.isdisjoint(plain.symbols[i])
    due = prompts.successors(here, plain)[here.scored]
    assert [model.tokenizer.decode([token]) for token in due.tolist()] == list(GLOBAL.values())


def test_a_model_without_a_tokenizer_is_refused():
    bare = ms.models.build(ms.ModelSpec(n_layers=1), d_vocab=5, n_ctx=8, seed=0)
    with pytest.raises(ms.InputError, match="must have a tokenizer"):
        prompts.repeated(bare, n=1, seed=0)
