"""The questions, with a tokenizer of whole words and with models of three architectures."""

import pytest
import torch

import mnemoscope as ms
from mnemoscope.systems.language_models import constructed, prompts
from mnemoscope.systems.language_models import words as material
from mnemoscope.systems.language_models.prompts import ordinary
from mnemoscope.systems.language_models.words import CONFLICTS, FACTS, NAMES, STORIES, WORDS
from tests.language_models import SPECIAL, save
from tests.language_models import WORDS as KNOWN

ALL = {name for of in NAMES.values() for name in of}


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


def test_heads_are_chosen_on_other_words_and_names_than_are_measured(model):
    chosen, asked, means = (
        set(prompts.repeated(model, n=40, seed=seed).inputs.flatten().tolist())
        for seed in (prompts.CHOOSING, prompts.ASKED, prompts.REFERENCE)
    )
    assert asked == means
    assert not chosen & asked
    assert len(chosen) == len(asked) == len(WORDS["common"]) / 2
    chosen, asked = (
        {word for symbols in prompts.givers(model, n=100, seed=seed).clean.symbols for word in symbols if word in ALL}
        for seed in (prompts.CHOOSING, prompts.ASKED)
    )
    assert not chosen & asked
    assert chosen | asked == set(NAMES["common"])


def test_no_verdict_rests_on_what_is_tried_out():
    for sets in (material.WORDS, material.NAMES, material.STORIES, material.CONFLICTS, material.RELATIONS):
        others = {each for name, of in sets.items() if name != material.PILOT for each in of}
        assert others
        assert not others & set(sets[material.PILOT])


def test_a_set_that_there_is_not_is_refused(model):
    with pytest.raises(ms.InputError, match="words must be one of: common, pilot, any; got 'long'"):
        prompts.repeated(model, n=1, seed=0, words="long")


def test_ordinary_tokens_are_words_and_never_special(tmp_path):
    small = ms.language_model(save("llama", tmp_path))
    words = [small.tokenizer.convert_ids_to_tokens(token) for token in ordinary(small.tokenizer, small.cfg.d_vocab)]
    assert words == [word for word in KNOWN if len(word) >= 3 and word.isalpha()]
    batch = prompts.repeated(small, n=3, seed=0)
    assert batch.inputs[:, 0].tolist() == [SPECIAL.index("<bos>")] * 3
    assert set(batch.inputs[0, 1:].tolist()) <= set(ordinary(small.tokenizer, small.cfg.d_vocab))


def test_a_fact_its_partner_and_third_subjects_have_one_length_and_different_answers(model):
    of = prompts.facts(model)
    pairs = of.told.pairs
    relations = material.RELATIONS["all"]
    assert len(pairs) == sum(len(FACTS[relation]) for relation in relations)
    at_last = pairs.scored
    assert not (pairs.answer == pairs.foil)[at_last].any()
    said = [[row[int(pos)] for row, pos in zip(batch.symbols, batch.latents["S"], strict=True)]
            for batch in (pairs.clean, pairs.corrupted, of.told.third)]  # fmt: skip
    assert said[0][:3] == ["Texas", "Georgia", "Massachusetts"]
    row = 0
    for relation in relations:
        for subject in FACTS[relation]:
            answers = {FACTS[relation][each[row]] for each in said}
            assert FACTS[relation][subject] in answers
            assert len(answers) == 3
            row += 1
    assert torch.equal(pairs.clean.latents["S"], pairs.corrupted.latents["S"])
    assert of.named is not None
    again = [model.tokenizer.decode([token]) for token in of.named.pairs.answer[of.named.pairs.scored].tolist()]
    assert again == said[0]


def test_namesakes_end_with_one_token(monkeypatch):
    words = [word for pair in FACTS["namesakes"].items() for text in pair for word in text.split()]
    monkeypatch.setattr(constructed, "vocabulary", lambda *of: list(dict.fromkeys(words)))
    model = constructed.with_words(constructed.untrained(0)["model"])
    namesakes = [name for name in FACTS["namesakes"] if name.split()[-1] == "Jackson"]
    pairs = prompts.facts(model, relations="namesakes").told.pairs
    for side in (pairs.clean, pairs.corrupted):
        last = [row[int(pos)] for row, pos in zip(side.symbols, side.latents["S"], strict=True)]
        assert last[: len(namesakes)] == ["Jackson"] * len(namesakes)


def test_in_stories_the_name_that_is_said_once_is_due(model):
    pairs = prompts.givers(model, n=16, seed=3)
    for row, (symbols, answer) in enumerate(zip(pairs.clean.symbols, pairs.answer[pairs.scored].tolist(), strict=True)):
        due = model.tokenizer.decode([answer])
        names = [word for word in symbols if word in ALL]
        assert sorted(map(names.count, set(names))) == [1, 2]
        assert names.count(due) == 1
        assert symbols[int(pairs.clean.latents["IO"][row])] == due
        first, again = (symbols[int(pairs.clean.latents[place][row])] for place in ("S1", "S"))
        assert first == again == model.tokenizer.decode([int(pairs.foil[pairs.scored][row])])
    assert pairs.clean.latents["story"].tolist() == [i % len(STORIES["giving"]) for i in range(16)]
    firsts = (pairs.clean.latents["IO"] < pairs.clean.latents["S1"]).tolist()
    assert firsts == [i // len(STORIES["giving"]) % 2 == 0 for i in range(16)]


def test_a_third_name_says_nothing_of_who_is_due(model):
    pairs = prompts.givers(model, n=8, seed=3, apart=True)
    for symbols in pairs.clean.symbols:
        names = [word for word in symbols if word in ALL]
        assert len(set(names)) == len(names) == 3


def test_texts_end_with_a_preposition_that_stands_before_a_word_of_their_own(model):
    of = prompts.conflicts(model)
    assert len(of.told) == len(of.plain) == len(of.elsewhere) == prompts.N_QUESTIONS
    texts = CONFLICTS["places"]
    for i, (told, plain, elsewhere) in enumerate(
        zip(of.told.symbols, of.plain.symbols, of.elsewhere.symbols, strict=True)
    ):
        n = int(of.told.known_lengths[i])
        last = texts[i % len(texts)].split()[-1]
        at = told.index(last)
        due = model.tokenizer.decode(of.told.targets[i][of.told.scored[i]].tolist())
        assert (told[n - 1], told[at + 1]) == (last, due)
        assert due not in plain
        assert elsewhere[: n - 1] == told[: n - 1]
        assert elsewhere[n - 1] in WORDS["common"]
    assert {model.tokenizer.decode([token]) for token in of.foil[of.told.scored].tolist()} == {"the"}


def test_a_model_without_a_tokenizer_is_refused():
    bare = ms.models.build(ms.ModelSpec(n_layers=1), d_vocab=5, n_ctx=8, seed=0)
    with pytest.raises(ms.InputError, match="must have a tokenizer"):
        prompts.repeated(bare, n=1, seed=0)
