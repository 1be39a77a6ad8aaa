"""Answers of a model: the most probable acceptable one, and a sampled one.

*Most probable.* The log-probability of an acceptable answer is the sum over its tokens, given the question; the answer
is the one with the largest. No end of the answer is asked for, so that longer answers are at a disadvantage only by
their further tokens. A model that never gives an answer in the form that is asked for has one all the same: what it
would say, had it to choose.

*Sampled.* Tokens are drawn until the answer ends, and whole answers until an acceptable one comes out, at most so many
times; a question may stay without one. That is how the source asks. An answer is what stands before the first line
break or the end, without space around it and without a final full stop; case does not matter. It is given up as soon
as it is the beginning of no acceptable answer.

Source: Mușat, section 4.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope import InputError, generator
from mnemoscope.core import in_range
from mnemoscope.models import HookedTransformer
from mnemoscope.systems.retrieval_prompts.questions import FORMULATIONS, Question
from mnemoscope.systems.retrieval_prompts.reading import (
    Asked,
    Read,
    batches,
    budget,
    check_length,
    check_model,
    go_on,
    read,
    row_bytes,
    rows_of,
)

_ROOM = 3
"""Tokens of a sampled answer beyond those of the longest acceptable one: a line break before it, a full stop, the
end."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Options of sampling. The answers drawn for a question depend on it and the seed, not on its batch."""

    tries: int = 20
    """Answers to a question at most."""
    temperature: float = 1.0
    """What logits are divided by; 0 takes the most probable token every time."""
    seed: int = 0

    def __post_init__(self) -> None:
        in_range("tries", self.tries, 1, float("inf"))
        in_range("temperature", self.temperature, 0, float("inf"))


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The answers of a model to a question."""

    question: Question
    log_probs: tuple[float, ...]
    """Of the acceptable answers, in nats."""
    sampled: str | None = None
    """The first acceptable answer that was drawn; none: all tries ended in something else, or nothing was drawn."""
    tries: int = 0
    """Answers that were drawn."""

    @property
    def chosen(self) -> str:
        """The most probable acceptable answer."""
        return self.question.acceptable[max(range(len(self.log_probs)), key=self.log_probs.__getitem__)]


def answers(
    model: Any, asked: Sequence[Asked], *, sampling: Sampling | None = None, max_bytes: int | None = None
) -> Iterator[list[Answered]]:
    """Answers to questions, in batches of like length; a batch at a time, as it is finished.

    Without `sampling` nothing is drawn. A batch takes `max_bytes` beside the weights; none: 128 MB on a processor, 4 GB
    on a GPU.

    Raises:
        InputError: The model cannot keep keys and values, a prompt is too long, or logits hold NaN.
    """
    check_model(model)
    room = max((each.longest for each in asked), default=0) + _ROOM
    check_length(model, max((len(each.prompt) for each in asked), default=0) + room)
    ordered = sorted(asked, key=lambda each: len(each.prompt))
    sizes = [row_bytes(model, len(each.prompt) + room) for each in ordered]
    limit = budget(model, max_bytes)
    for batch in batches(ordered, sizes, limit):
        found = read(model, [each.prompt for each in batch])
        scores = _scores(model, found, batch, limit)
        drawn = [(None, 0)] * len(batch) if sampling is None else _sampled(model, found, batch, sampling)
        yield [
            Answered(question=each.question, log_probs=tuple(values), sampled=answer, tries=tries)
            for each, values, (answer, tries) in zip(batch, scores, drawn, strict=True)
        ]


def _scores(model: HookedTransformer, found: Read, batch: list[Asked], max_bytes: int) -> list[list[float]]:
    """First tokens come from the prompt itself; answers of several go on from its keys and values."""
    first = _log_probs(found.logits)
    sums = [[float(first[row, answer[0]]) for answer in each.answers] for row, each in enumerate(batch)]
    longer = [(row, i) for row, each in enumerate(batch) for i, answer in enumerate(each.answers) if len(answer) > 1]
    n_tokens, n_new = max(len(each.prompt) for each in batch), max(each.longest for each in batch)
    size = row_bytes(model, n_tokens + n_new, n_new)
    for some in batches(longer, [size] * len(longer), max_bytes):
        continued = [batch[row].answers[i] for row, i in some]
        cache = rows_of(found.cache, [row for row, _ in some], frozen=True)
        after = _log_probs(go_on(model, cache, [answer[:-1] for answer in continued]))
        for (row, i), answer, values in zip(some, continued, after, strict=True):
            sums[row][i] += sum(float(values[at, token]) for at, token in enumerate(answer[1:]))
    return sums


def _log_probs(logits: Float[Tensor, "*rows d_vocab"]) -> Float[Tensor, "*rows d_vocab"]:
    found = logits.float().log_softmax(-1)
    if found.isnan().any():
        raise InputError("the model's logits hold NaN; check its weights")
    return found


def _sampled(
    model: HookedTransformer, found: Read, batch: list[Asked], sampling: Sampling
) -> list[tuple[str | None, int]]:
    """The first acceptable answer to each question, and how many were drawn."""
    streams = [generator(sampling.seed, "sampled answers", _name(each)) for each in batch]
    results: dict[int, tuple[str | None, int]] = {}
    for number in range(1, sampling.tries + 1):
        left = [row for row in range(len(batch)) if row not in results]
        for row, text in _drawn(model, found, batch, left, streams, sampling.temperature).items():
            answer = accepted(text, batch[row].question.acceptable)
            if answer is not None or number == sampling.tries:
                results[row] = (answer, number)
        if len(results) == len(batch):
            break
    return [results[row] for row in range(len(batch))]


def _name(asked: Asked) -> str:
    question = asked.question
    return f"{question.formulation} {question.difficulty} {question.seed} {question.number}"


def _drawn(
    model: HookedTransformer,
    found: Read,
    batch: list[Asked],
    rows: list[int],
    streams: list[torch.Generator],
    temperature: float,
) -> dict[int, str]:
    """One sampled text for each of some rows of a batch.

    A row leaves as soon as it has ended, or is the beginning of nothing acceptable.
    """
    tokenizer: Any = model.tokenizer
    ends = {*tokenizer.all_special_ids, tokenizer.eos_token_id}
    written: dict[int, list[int]] = {row: [] for row in rows}
    texts = dict.fromkeys(rows, "")
    live, logits, cache = rows, found.logits[rows], None
    for _ in range(max(each.longest for each in batch) + _ROOM):
        tokens = [_token(each, streams[row], temperature) for row, each in zip(live, logits.float().cpu(), strict=True)]
        going = []
        for place, (row, token) in enumerate(zip(live, tokens, strict=True)):
            if token in ends:
                continue
            written[row].append(token)
            texts[row] = tokenizer.decode(written[row], clean_up_tokenization_spaces=False)
            if could_become(texts[row], batch[row].question.acceptable):
                going.append(place)
        if not going:
            break
        cache = rows_of(found.cache, [live[i] for i in going]) if cache is None else rows_of(cache, going)
        live = [live[i] for i in going]
        logits = go_on(model, cache, [written[row][-1:] for row in live])[:, -1]
    return texts


def _token(logits: Float[Tensor, " d_vocab"], stream: torch.Generator, temperature: float) -> int:
    """A token by the inverse of the distribution function, a number of the stream each."""
    if temperature == 0:
        return int(logits.argmax())
    shares = (logits.double() / temperature).softmax(-1).cumsum(-1)
    point = torch.rand(1, generator=stream, dtype=torch.double) * shares[-1]
    return min(int(torch.searchsorted(shares, point, right=True)), len(shares) - 1)


def accepted(text: str, acceptable: Sequence[str]) -> str | None:
    """The acceptable answer that a text is; none: it is something else."""
    line = (text.strip().splitlines() or [""])[0]
    said = line.strip().removesuffix(".").strip().casefold()
    return next((answer for answer in acceptable if answer.casefold() == said), None)


def could_become(text: str, acceptable: Sequence[str]) -> bool:
    """True where a text that has not ended is the beginning of an acceptable answer."""
    begun = text.lstrip()
    if "\n" in begun:
        return False
    return any(f"{answer}.".casefold().startswith(begun.rstrip().casefold()) for answer in acceptable)


_SURE = math.log(0.9)
"""Log-probability of the answer that a stand-in gives."""


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """Right with a probability, and otherwise any of the other acceptable answers; what it does not know it guesses."""

    share: float
    """Of questions that it answers rightly, in expectation."""
    knows: tuple[str, ...] = tuple(FORMULATIONS)
    """Formulations."""
    seed: int = 0
    n_parameters: float = 1e10
    """As many as it claims to have."""

    def answers(self, questions: Sequence[Question], sampling: Sampling | None = None) -> Iterator[list[Answered]]:
        """All answers at once; a sampled one is the same, at the first try."""
        yield [self._answered(question, sampling is not None) for question in questions]

    def _answered(self, question: Question, sampled: bool) -> Answered:
        named = (question.formulation, str(question.difficulty), question.seed, question.number)
        stream = generator(self.seed, "stand-in", *named)
        share = self.share if question.formulation in self.knows else 1 / len(question.acceptable)
        others = [answer for answer in question.acceptable if answer != question.correct]
        right = bool(torch.rand(1, generator=stream, dtype=torch.float32) < share)
        other = others[int(torch.randint(len(others), (1,), generator=stream))]
        said = question.correct if right else other
        rest = math.log(0.1 / len(others))
        log_probs = tuple(_SURE if answer == said else rest for answer in question.acceptable)
        drawn = {"sampled": said, "tries": 1} if sampled else {}
        return Answered(question=question, log_probs=log_probs, **drawn)
