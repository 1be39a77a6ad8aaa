"""Questions in tokens: through the chat template or with a cue, answers as they follow."""

import pytest

import mnemoscope as ms
from mnemoscope.systems.retrieval_prompts.questions import Question, questions
from mnemoscope.systems.retrieval_prompts.reading import ask
from tests.systems.retrieval_prompts import tiny

(CITY,) = questions("lives-with", 1, difficulty=1)
CHAT, BASE = tiny.tokenizer(), tiny.tokenizer(chat=False)


def test_a_chat_model_gets_the_question_as_a_message_and_is_to_answer():
    (asked,) = ask(CHAT, [CITY])
    expected = f"<bos>user\n{CITY.text}<end>\n<bos>assistant\n"
    assert CHAT.decode(asked.prompt) == expected
    assert [CHAT.decode(answer) for answer in asked.answers] == list(CITY.acceptable)
    assert asked.longest == len("Amsterdam") / 3


def test_a_base_model_gets_a_cue_and_answers_after_a_space():
    for tokenizer, chat in ((BASE, None), (CHAT, False)):
        (asked,) = ask(tokenizer, [CITY], chat=chat)
        assert tokenizer.decode(asked.prompt) == f"<bos>{CITY.text}\nAnswer:"
        assert [tokenizer.decode(answer) for answer in asked.answers] == [f" {city}" for city in CITY.acceptable]
        assert asked.prompt.count(tokenizer.bos_token_id) == 1


def test_no_template_where_one_is_asked_for_is_refused():
    with pytest.raises(ms.InputError, match="tokenizer with a chat template"):
        ask(BASE, [CITY], chat=True)


def test_answers_that_are_the_same_to_the_tokenizer_are_refused():
    odd = Question(text="Who?", correct="Ω", acceptable=("Ω", "Ψ"), formulation="equations")
    with pytest.raises(ms.InputError, match="Ω, Ψ must have different tokens"):
        ask(CHAT, [odd])
