"""Questions as the tokens that a model reads, and their acceptable answers as the tokens that would follow.

A model with a chat template gets the question as the user's message, and answers as the assistant. Any other reads the
question, a line break and `Answer:`, after the token that begins a text if it has one; an answer then begins with a
space.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mnemoscope import InputError
from mnemoscope.systems.retrieval_prompts.questions import Question

CUE = "\nAnswer:"
"""What follows the question where there is no chat template."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question in tokens."""

    question: Question
    prompt: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]
    """Tokens of each acceptable answer, as they follow the prompt."""

    @property
    def longest(self) -> int:
        """Tokens of the longest acceptable answer."""
        return max(map(len, self.answers))


def takes_chat(tokenizer: Any) -> bool:
    """True where a tokenizer has a chat template."""
    return bool(getattr(tokenizer, "chat_template", None))


def ask(tokenizer: Any, questions: Sequence[Question], *, chat: bool | None = None) -> tuple[Asked, ...]:
    """Questions in tokens, through the chat template or not; none: if there is one.

    Raises:
        InputError: A chat template is asked for and there is none, or two acceptable answers have the same tokens.
    """
    chat = takes_chat(tokenizer) if chat is None else chat
    if chat and not takes_chat(tokenizer):
        raise InputError("chat needs a tokenizer with a chat template, and this one has none; leave it out")
    return tuple(_asked(tokenizer, question, chat) for question in questions)


def _asked(tokenizer: Any, question: Question, chat: bool) -> Asked:
    if chat:
        message = [{"role": "user", "content": question.text}]
        text, front = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False), []
    else:
        text, front = question.text + CUE, [tokenizer.bos_token_id]
    prompt = _tokens(tokenizer, text)
    answers = tuple(
        _following(tokenizer, text, prompt, answer if chat else f" {answer}") for answer in question.acceptable
    )
    if len(set(answers)) < len(answers):
        raise InputError(
            f"the acceptable answers {', '.join(question.acceptable)} must have different tokens; the tokenizer does "
            "not tell them apart"
        )
    beginning = [token for token in front if token is not None]
    return Asked(question=question, prompt=(*beginning, *prompt), answers=answers)


def _following(tokenizer: Any, text: str, prompt: list[int], answer: str) -> tuple[int, ...]:
    """Tokens of an answer after a text; alone, if together they would change the tokens of the text."""
    whole = _tokens(tokenizer, text + answer)
    n = len(prompt)
    return tuple(whole[n:] if whole[:n] == prompt and len(whole) > n else _tokens(tokenizer, answer))


def _tokens(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
