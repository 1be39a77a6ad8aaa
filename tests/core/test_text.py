"""Prompts as text: tokens, padding, places by name, answers, and refusals that show the tokens."""

import pytest
import torch

from mnemoscope import Batch, InputError, Prompt, prompt_pairs, prompts
from mnemoscope.analyses import check_fits
from tests.language_models import tokenizer
from tests.support import random_model

WORDS = tokenizer()
TEMPLATE = "When {A} and {B} went to the store , {B} gave a drink to"


def number(word: str) -> int:
    return WORDS.convert_tokens_to_ids(word)


def test_texts_are_padded_on_the_right_and_scored_where_the_answer_is_due():
    batch = prompts(WORDS, ["The capital of France is", "The cat sat on the"], answers=["Paris", "mat"])
    assert batch.symbols[0] == ["<bos>", "The", "capital", "of", "France", "is"]
    longer = prompts(WORDS, ["The capital of France is", "The cat"], answers=["Paris", "dog"])
    assert longer.symbols[1] == ["<bos>", "The", "cat", "<pad>", "<pad>", "<pad>"]
    assert longer.known_lengths.tolist() == [6, 3]
    assert longer.scored.nonzero().tolist() == [[0, 5], [1, 2]]
    assert longer.targets[longer.scored].tolist() == [number("Paris"), number("dog")]
    assert longer.latents["last"].tolist() == [5, 2]
    assert longer.real.sum(1).tolist() == [6, 3]
    assert (longer.ragged, longer.select(slice(0, 1)).ragged) == (True, False)
    assert longer.select(torch.tensor([1])).known_lengths.tolist() == [3]


def test_without_answers_every_next_token_is_due():
    batch = prompts(WORDS, ["The cat sat", "The cat sat on the mat"], bos=False)
    assert batch.scored.tolist() == [[True, True, False, False, False, False], [True] * 5 + [False]]
    expected = [number(word) for word in ("cat", "sat", "cat", "sat", "on", "the", "mat")]
    assert batch.targets[batch.scored].tolist() == expected


def test_a_text_that_begins_with_bos_gets_no_second_one():
    """As chat templates write them; also beside others, and with places."""
    plain = prompts(WORDS, ["The cat sat", "The dog"], answers=["on", "on"])
    written = prompts(WORDS, ["<bos> The cat sat", "The dog"], answers=["on", "on"])
    assert written.inputs.equal(plain.inputs)
    assert written.latents["last"].equal(plain.latents["last"])
    found = prompts(WORDS, Prompt.find("<bos> The cat sat", who="cat"), answers=["on"])
    assert found.symbols[0][int(found.latents["who"])] == "cat"
    assert found.inputs.tolist() == [[1, number("The"), number("cat"), number("sat")]]
    assert prompts(WORDS, "<bos> The cat", bos=False).inputs.equal(prompts(WORDS, "The cat").inputs)
    pairs = prompt_pairs(WORDS, ["<bos> The cat"], ["The dog"], answers=["sat"], foils=["on"])
    assert pairs.clean.symbols[0] == ["<bos>", "The", "cat"]


def test_a_chat_template_is_read_as_it_is():
    words = tokenizer()
    words.chat_template = "{{ bos_token }} {% for message in messages %}{{ message['content'] }} {% endfor %}"
    text = words.apply_chat_template([{"role": "user", "content": "The cat sat"}], tokenize=False)
    assert prompts(words, text).inputs.tolist() == [words(text, add_special_tokens=False).input_ids]


def test_fields_of_a_template_are_places():
    filled = [Prompt.fill(TEMPLATE, A=a, B=b) for a, b in (("John", "Mary"), ("Paul and Anna", "Mary"))]
    batch = prompts(WORDS, filled, answers=["John", "Paul"])
    assert batch.latents["A"].tolist() == [2, 4], "the last token of the name"
    assert batch.latents["A_first"].tolist() == [2, 2]
    assert batch.latents["B"].tolist() == [4, 6]
    assert batch.latents["B_2"].tolist() == [10, 12]
    without = prompts(WORDS, filled, answers=["John", "Paul"], bos=False)
    assert without.latents["B_2"].tolist() == [9, 11]
    mixed = prompts(WORDS, [filled[0], "When John went"], answers=["John", "Paul"])
    assert set(mixed.latents) == {"last"}, "names that not all texts have are no latents"


def test_words_are_found_where_they_occur_once():
    batch = prompts(WORDS, Prompt.find("The capital of France is", subject="France"), answers=["Paris"])
    assert batch.latents["subject"].tolist() == [4]
    with pytest.raises(InputError, match=r"'the' must occur once in 'the cat on the mat'; it occurs 2 times"):
        Prompt.find("the cat on the mat", where="the")
    with pytest.raises(InputError, match="it occurs 0 times"):
        Prompt.find("the cat", who="dog")


def test_pairs_are_read_after_their_last_token():
    clean = [Prompt.fill(TEMPLATE, A="John", B="Mary"), "The cat"]
    corrupted = [Prompt.fill(TEMPLATE, A="Paul", B="Anna"), "The dog"]
    pairs = prompt_pairs(WORDS, clean, corrupted, answers=["John", "sat"], foils=["Paul", "on"], name="names")
    assert (pairs.name, len(pairs)) == ("names", 2)
    assert pairs.answer[pairs.scored].tolist() == [number("John"), number("sat")]
    assert pairs.foil[pairs.scored].tolist() == [number("Paul"), number("on")]
    assert pairs.scored.nonzero().tolist() == [[0, 14], [1, 2]]


def pair(clean, corrupted, answers=("Paris",), foils=("Rome",)):
    return prompt_pairs(WORDS, clean, corrupted, answers=list(answers), foils=list(foils))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: pair(["The capital of France is"], ["The capital is"]),
            r"'is'\] and \['<bos>', 'The', 'cap",
        ),
        (
            lambda: pair(["The cat"], ["The dog"], ["Paris"], ["Paris"]),
            "pair 0 has 'Paris' for",
        ),
        (
            lambda: pair(["The cat"], ["The dog"], ["the mat"]),
            r"a single token; it is \['the', 'mat'\]",
        ),
        (lambda: pair(["The cat"], ["The dog", "The cat"]), "answers must be as many as texts"),
        (lambda: prompts(WORDS, []), "texts must hold at least one"),
        (lambda: prompts(WORDS, ["The cat", ""], bos=False), "text 1 is too short"),
        (lambda: prompts(WORDS, "The cat", answers=["a", "the"]), "answers must be as many as texts, 1; got 2"),
        (lambda: Prompt.fill("The {animal} sat", cat="x"), "has the field 'animal'; values are given for: cat"),
        (lambda: Prompt.fill("The {0} sat", cat="x"), "has the field '0'"),
        (lambda: prompts(WORDS, Prompt.fill("The {animal} sat", animal=" ")), "animal is empty"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_tokens(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_the_first_token_stands_for_an_answer_where_that_is_asked_for():
    batch = prompts(WORDS, "The cat sat on", answers=["the mat"], first_token=True)
    assert batch.targets[batch.scored].tolist() == [number("the")]


def test_padding_on_the_left_is_refused():
    model = random_model(d_vocab=len(WORDS), n_ctx=20)
    model.tokenizer = WORDS
    right = prompts(WORDS, ["The capital of France is", "The cat"], answers=["Paris", "dog"])
    check_fits(model, right)
    left = Batch(inputs=right.inputs.flip(1), targets=right.targets, scored=right.scored)
    with pytest.raises(InputError, match="row 1 is padded on the left"):
        check_fits(model, left)


def test_positions_are_called_by_their_token_or_their_place():
    filled = [
        Prompt.fill("The {animal} sat on the {where}", animal=a, where=w) for a, w in (("cat", "mat"), ("dog", "store"))
    ]
    batch = prompts(WORDS, filled, answers=["and", "and"])
    assert batch.common_tokens == ["<bos>", "The", "animal", "sat", "on", "the", "where"]
    longer = prompts(WORDS, [filled[0], "The cat"], answers=["and", "and"])
    assert longer.common_tokens == ["<bos>", "The", "cat", "sat", "on", "the", "mat"], "padding has no say"
    other = prompts(WORDS, ["The cat sat", "The dog sat"], answers=["on", "on"])
    assert other.common_tokens == ["<bos>", "The", "…", "sat"]
