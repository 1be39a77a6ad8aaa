"""The questions: repeated words, facts about two subjects, stories of two names of which one is said twice, conflicts.

Fixed seeds, one for choosing heads, one for the reference of means and one for the questions, give every model with one
tokenizer the same questions. Prompts that heads are chosen by are made of one half of the words or names, those that
are measured of the other half. Where a tokenizer has too few words of a set, as those of constructed models have, the
first set of its kind stands in.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from mnemoscope import Batch, HookedModel, InputError, Prompt, PromptPairs, generator, prompt_pairs, prompts
from mnemoscope.analyses import repeated_tokens
from mnemoscope.core import one_of
from mnemoscope.systems.language_models.words import (
    ALL,
    ANY,
    COMMON,
    CONFLICTS,
    FACTS,
    FILLERS,
    GENERIC,
    GIVING,
    NAMES,
    NAMESAKES,
    NOTHING,
    PLACES,
    RELATIONS,
    SAID_AGAIN,
    STORIES,
    TEMPLATES,
    WORDS,
)

SPACES = "Ġ▁"
"""Signs by which tokenizers write the space that a word begins with."""
SHORTEST = 3
"""Letters of an ordinary word."""

N_QUESTIONS = 48
"""Questions of each claim that draws stories or texts."""
N_SEQUENCES = 32
"""Sequences of repeated words."""
N_CHOOSING = 32
"""Prompts that heads are chosen by, and as many that means are taken over."""
LENGTH = 16
"""Tokens that are repeated."""
CHOOSING, REFERENCE, ASKED = 10, 11, 12
"""Seeds."""
Word = TypeVar("Word", str, int)


def tokenizer_of(model: HookedModel) -> Any:
    """The tokenizer of a language model; an `InputError` where it has none."""
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise InputError("the model must have a tokenizer, as those of ms.language_model have; got one without")
    return tokenizer


def device_of(model: HookedModel) -> torch.device:
    """The device of the model."""
    return next(iter(model.named_parameters()))[1].device


def _tokens(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _first(tokenizer: Any, answer: str) -> int:
    return _tokens(tokenizer, f" {answer}")[0]


def single(model: HookedModel, words: Sequence[str]) -> dict[str, int]:
    """The tokens of those words that are one token each, and no other's."""
    tokenizer = tokenizer_of(model)
    tokens = {word: _tokens(tokenizer, f" {word}") for word in words}
    found = {word: each[0] for word, each in tokens.items() if len(each) == 1}
    return {word: number for word, number in found.items() if list(found.values()).count(number) == 1}


def _half(of: Sequence[Word], *, seed: int) -> Sequence[Word]:
    """Every second entry: the even ones for choosing, the odd ones for all else."""
    return of[0 if seed == CHOOSING else 1 :: 2]


def ordinary(tokenizer: Any, d_vocab: int) -> tuple[int, ...]:
    """Tokens that are whole words of ASCII letters, with the space before them where the tokenizer has such tokens."""
    numbers = range(min(d_vocab, len(tokenizer)))
    special = set(tokenizer.all_special_ids)
    texts = dict(zip(numbers, tokenizer.convert_ids_to_tokens(list(numbers)), strict=True))
    words = {number: text for number, text in texts.items() if number not in special and _is_word(text)}
    spaced = tuple(number for number, text in words.items() if text[0] in SPACES)
    return spaced or tuple(words)


def _is_word(text: str) -> bool:
    letters = text.lstrip(SPACES)
    return len(letters) >= SHORTEST and letters.isascii() and letters.isalpha()


def repeated(model: HookedModel, *, n: int, seed: int, words: str = COMMON, length: int = LENGTH) -> Batch:
    """Random words shown twice, after the token that begins a text where there is one.

    They come from one half of a set of `WORDS`. With `ANY`, or where the tokenizer has not enough of the set as single
    tokens, they are any ordinary words. There are `length` of them, or as many as the model has words or places for.
    Scored from the first word of the second showing on, where the next is known.
    """
    one_of("words", words, (*WORDS, ANY))
    tokenizer = tokenizer_of(model)
    first = tokenizer.bos_token_id
    tokens = tuple(_half(list(single(model, WORDS.get(words, ())).values()), seed=seed))
    if len(tokens) < length:
        tokens = ordinary(tokenizer, model.cfg.d_vocab)
    length = min(length, len(tokens), (model.cfg.n_ctx - (first is not None)) // 2)
    return repeated_tokens(model, n=n, length=length, tokens=tokens, first_token=first, seed=seed).to(device_of(model))


def other_words(batch: Batch, *, seed: int) -> Int[Tensor, "batch pos"]:
    """Foils: at every position another token of the same sequence, drawn among those that are not due there."""
    n, n_pos = batch.inputs.shape
    scores = torch.rand(n, n_pos, n_pos, generator=generator(seed, "foils"), dtype=torch.float32).to(
        batch.inputs.device
    )
    due = batch.inputs[:, None, :] == batch.targets[:, :, None]
    front = torch.zeros_like(due)
    front[:, :, 0] = True  # what begins a text is no word
    return batch.inputs.gather(1, scores.masked_fill(due | front, -1.0).argmax(2))


@dataclass(frozen=True, kw_only=True)
class SubjectQuestions:
    """Questions about two subjects, and the same about a third one, row by row; latents `S` and `last`."""

    pairs: PromptPairs
    """A subject, and another one with another answer."""
    third: Batch
    """The same with a third subject, whose answer is neither of the two."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts about two subjects, and the same subjects named again."""

    told: SubjectQuestions
    named: SubjectQuestions | None
    """Texts that end where the last word of the subject is due again; None for namesakes, whose last words agree."""


def facts(model: HookedModel, *, relations: str = ALL) -> Facts:
    """Questions about facts of a set of `RELATIONS`, all subjects of a row with as many tokens.

    Answers are told apart by their first tokens; the last words of subjects are single tokens. Of namesakes the second
    subject ends with the token of the first. A fact without a partner or a third subject is left out. Raises InputError
    where none has both.
    """
    one_of("relations", relations, RELATIONS)
    tokenizer, rows = tokenizer_of(model), []
    for relation in RELATIONS[relations]:
        template = TEMPLATES[relation]
        known = single(model, [subject.split()[-1] for subject in FACTS[relation]])
        of = {subject: answer for subject, answer in FACTS[relation].items() if subject.split()[-1] in known}
        sizes = {subject: len(_tokens(tokenizer, template.format(S=subject))) for subject in of}
        first = {subject: _first(tokenizer, answer) for subject, answer in of.items()}
        names = list(of)
        for i, subject in enumerate(names):
            later = [other for other in (*names[i + 1 :], *names[:i]) if sizes[other] == sizes[subject]]
            unlike = [other for other in later if first[other] != first[subject]]
            alike = [other for other in unlike if other.split()[-1] == subject.split()[-1]]
            partner = next(iter(alike if relation == NAMESAKES else unlike), None)
            third = next((other for other in unlike if partner and first[other] != first[partner]), None)
            if partner and third:
                rows.append((template, of, (subject, partner, third)))
    if not rows and relations != ALL:
        return facts(model)
    if not rows:
        raise InputError("the tokenizer tells no three answers to the facts apart; take a model with another one")
    told = _about(model, [(template, subjects, [of[each] for each in subjects]) for template, of, subjects in rows])
    again = [(SAID_AGAIN, subjects, [each.split()[-1] for each in subjects]) for _, _, subjects in rows]
    return Facts(told=told, named=None if relations == NAMESAKES else _about(model, again))


def _about(model: HookedModel, rows: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> SubjectQuestions:
    """Questions from templates, three subjects and their answers; one that is named again is begun up to its end."""

    def texts(side: int) -> list[Prompt]:
        begun = [" ".join(of[side].split()[:-1]) if template == SAID_AGAIN else "" for template, of, _ in rows]
        return [
            Prompt.fill(f"{template} {words}".rstrip(), S=of[side])
            for (template, of, _), words in zip(rows, begun, strict=True)
        ]

    tokenizer, device = tokenizer_of(model), device_of(model)
    answers, foils, third = ([f" {each[side]}" for _, _, each in rows] for side in range(3))
    pairs = prompt_pairs(tokenizer, texts(0), texts(1), answers=answers, foils=foils, name="subject", first_token=True)
    return SubjectQuestions(
        pairs=pairs.to(device), third=prompts(tokenizer, texts(2), answers=third, first_token=True).to(device)
    )


def givers(
    model: HookedModel, *, n: int, seed: int, apart: bool = False, names: str = COMMON, stories: str = GIVING
) -> PromptPairs:
    """Stories of two names, one of which is repeated as S2: the other, the IO name, is right; both orders in turn.

    The names come from one half of a set of `NAMES`. With `apart` a third name stands as S2, so that nothing says which
    name is right. Only the first sides of the pairs are meant to be read: the second sides repeat the other name, for
    the foil. Latents `A`, `B`, `S`, `last`, `story`, and `IO` and `S1`, the first occurrences. Raises InputError where
    fewer than three of the names are single tokens.
    """
    one_of("names", names, NAMES)
    one_of("stories", stories, STORIES)
    templates = STORIES[stories]
    each = [_half(list(single(model, NAMES[of])), seed=seed) for of in (names, COMMON)]
    known = next((of for of in each if len(of) >= 3), each[-1])
    if len(known) < 3:
        raise InputError(f"three names must be single tokens; the tokenizer has {len(known)} of them")
    draws = generator(seed, "names")
    clean, corrupted, answers, foils, first_due = [], [], [], [], []
    for i in range(n):
        a, b, c = (known[int(j)] for j in torch.randperm(len(known), generator=draws)[:3])
        story, is_first = templates[i % len(templates)], (i // len(templates)) % 2 == 0
        due, said = (a, b) if is_first else (b, a)
        clean.append(Prompt.fill(story, A=a, B=b, S=c if apart else said))
        corrupted.append(Prompt.fill(story, A=a, B=b, S=due))
        answers.append(f" {due}")
        foils.append(f" {said}")
        first_due.append(is_first)
    pairs = prompt_pairs(tokenizer_of(model), clean, corrupted, answers=answers, foils=foils, name="who gives")
    a, b, first = pairs.clean.latents["A"], pairs.clean.latents["B"], torch.tensor(first_due)
    latents = {
        **pairs.clean.known,
        "IO": torch.where(first, a, b),
        "S1": torch.where(first, b, a),
        "story": torch.arange(n) % len(templates),
    }
    return replace(pairs, clean=replace(pairs.clean, known=latents)).to(device_of(model))


@dataclass(frozen=True, kw_only=True)
class Conflicts:
    """Texts in which a preposition stands before a word of its own, and which end with the preposition."""

    told: Batch
    """The answer is the word after the preposition in the text."""
    plain: Batch
    """The same with another word in its place; the answer stays."""
    elsewhere: Batch
    """The same as `told`, with nouns in place of the last word."""
    foil: Int[Tensor, "batch pos"]
    """The word that mostly follows a preposition, at every position."""


def conflicts(model: HookedModel, *, text: str = PLACES) -> Conflicts:
    """`N_QUESTIONS` texts of a set of `CONFLICTS`, as many from each template, with the latent `last`.

    Words for B are single tokens. Raises InputError where the tokenizer has none, or no noun.
    """
    one_of("text", text, CONFLICTS)
    tokenizer = tokenizer_of(model)
    text = text if single(model, FILLERS[text]) else PLACES
    fillers, nouns = list(single(model, FILLERS[text])), list(single(model, WORDS[COMMON]))
    if not fillers or not nouns:
        raise InputError("words of the texts must be single tokens; take a model with another tokenizer")
    templates = CONFLICTS[text]
    rows = [(templates[i % len(templates)], fillers[i % len(fillers)]) for i in range(N_QUESTIONS)]
    answers = [f" {word}" for _, word in rows]
    texts = {
        "told": [Prompt.fill(template, B=word) for template, word in rows],
        "plain": [Prompt.fill(template, B=NOTHING[text]) for template, _ in rows],
        "elsewhere": [
            Prompt.fill(f"{template.rsplit(maxsplit=1)[0]} {nouns[i % len(nouns)]}", B=word)
            for i, (template, word) in enumerate(rows)
        ],
    }
    batches = {name: prompts(tokenizer, each, answers=answers).to(device_of(model)) for name, each in texts.items()}
    foil = torch.full_like(batches["told"].targets, _first(tokenizer, GENERIC))
    return Conflicts(**batches, foil=foil)
