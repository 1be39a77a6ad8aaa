"""The questions: repeated random tokens, facts about two subjects, and two names of which one is said twice.

Fixed seeds, one for choosing heads, one for the reference of means and one for the questions, give every model with one
tokenizer the same questions.

The material of prompts: ordinary tokens, facts, and common first names; a tokenizer decides which can be used.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from mnemoscope import Batch, HookedModel, InputError, Prompt, PromptPairs, generator, prompt_pairs, prompts
from mnemoscope.analyses import repeated_tokens

SPACES = "Ġ▁"
"""Signs by which tokenizers write the space that a word begins with."""
SHORTEST = 3
"""Letters of an ordinary word."""

CAPITAL = "The capital of {S} is the city of"
LANGUAGE = "The official language of {S} is"
FACTS: dict[str, dict[str, str]] = {
    CAPITAL: {
        "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Japan": "Tokyo",
        "China": "Beijing", "Russia": "Moscow", "Greece": "Athens", "Egypt": "Cairo", "England": "London",
        "Austria": "Vienna", "Poland": "Warsaw", "Portugal": "Lisbon", "Ireland": "Dublin", "Sweden": "Stockholm",
        "Norway": "Oslo", "Denmark": "Copenhagen", "Hungary": "Budapest", "Belgium": "Brussels", "Cuba": "Havana",
        "Turkey": "Ankara", "Iran": "Tehran", "Iraq": "Baghdad", "Syria": "Damascus", "Lebanon": "Beirut",
        "Kenya": "Nairobi", "Thailand": "Bangkok", "Canada": "Ottawa", "Peru": "Lima", "Chile": "Santiago",
        "Scotland": "Edinburgh", "Ukraine": "Kiev", "Finland": "Helsinki", "Vietnam": "Hanoi",
        "South Korea": "Seoul", "New Zealand": "Wellington", "Saudi Arabia": "Riyadh", "Sri Lanka": "Colombo",
    },
    LANGUAGE: {
        "France": "French", "Italy": "Italian", "Spain": "Spanish", "Germany": "German", "Japan": "Japanese",
        "China": "Mandarin", "Russia": "Russian", "Greece": "Greek", "Egypt": "Arabic", "England": "English",
        "Poland": "Polish", "Portugal": "Portuguese", "Sweden": "Swedish", "Norway": "Norwegian",
        "Denmark": "Danish", "Hungary": "Hungarian", "Turkey": "Turkish", "Iran": "Persian", "Thailand": "Thai",
        "Finland": "Finnish", "Vietnam": "Vietnamese", "Israel": "Hebrew", "South Korea": "Korean",
        "Saudi Arabia": "Arabic",
    },
}  # fmt: skip
"""True completions by subject, by template."""

NAMES = (
    "John", "Mary", "James", "Anna", "Paul", "Kate", "Peter", "Alice", "David", "Sarah", "Robert", "Laura", "Michael",
    "Emma", "Thomas", "Jane", "Mark", "Susan", "George", "Helen", "Daniel", "Lisa", "Henry", "Julia", "Charles",
    "Emily", "Simon", "Rachel",
)  # fmt: skip
STORIES = (
    "Then {A} and {B} went to the store and {S} gave a drink to",
    "When {A} and {B} had a long talk in the garden {S} handed the book to",
    "After {A} and {B} came to the office this morning {S} decided to give a letter to",
    "While {A} and {B} were working at the school {S} gave an apple to",
)
"""Stories in which A or B is repeated as S; the other is the IO name."""


GLOBAL = {
    "Albert": "Einstein", "Barack": "Obama", "Donald": "Trump", "Isaac": "Newton", "Vladimir": "Putin",
    "Winston": "Churchill", "Elvis": "Presley", "Nelson": "Mandela", "Sherlock": "Holmes", "Abraham": "Lincoln",
    "Charles": "Darwin", "William": "Shakespeare", "Michael": "Jackson", "Martin": "Luther", "Theodore": "Roosevelt",
    "Thomas": "Jefferson", "George": "Washington", "Harry": "Potter", "Mickey": "Mouse", "Santa": "Claus",
    "Los": "Angeles", "San": "Francisco", "Las": "Vegas", "Hong": "Kong", "Saudi": "Arabia", "Puerto": "Rico",
    "Costa": "Rica", "Buenos": "Aires", "Sri": "Lanka", "El": "Salvador", "Star": "Wars", "Wall": "Street",
    "Silicon": "Valley", "Nobel": "Prize", "World": "War", "Super": "Bowl", "Niagara": "Falls", "Napoleon": "Bonaparte",
    "Walt": "Disney", "Marilyn": "Monroe", "Oprah": "Winfrey", "Bill": "Clinton", "Hillary": "Clinton",
    "Ronald": "Reagan", "Karl": "Marx", "Sigmund": "Freud", "Galileo": "Galilei", "Leonardo": "da",
}  # fmt: skip
"""The word that mostly follows, by word."""
LOCAL = ("Garden", "Baker", "Table", "Miller", "Winter", "Carpenter", "River", "Fisher")
"""Words that mostly follow none of these."""
CONFLICT = "Everyone here talks about {A} {B} . We like {A} {B} and we met {A}"
PLAIN = "Everyone here talks about the weather . We like the garden and we met {A}"
"""Where A has a successor in the text, and where it has none."""


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


def vocabulary() -> Sequence[str]:
    """Every word of the prompts, for a tokenizer of whole words."""
    facts = [word for template, of in FACTS.items() for text in (template, *of, *of.values()) for word in text.split()]
    stories = [word for story in STORIES for word in story.split()]
    said = (*CONFLICT.split(), *GLOBAL, *GLOBAL.values(), *LOCAL)
    return [word for word in dict.fromkeys((*facts, *NAMES, *stories, *said)) if "{" not in word]


N_QUESTIONS = 64
"""Questions of each claim that draws them."""
N_CHOOSING = 32
"""Prompts that heads are chosen by, and as many that means are taken over."""
LENGTH = 20
"""Tokens that are repeated."""
CHOOSING, REFERENCE, ASKED = 0, 1, 2
"""Seeds."""


def tokenizer_of(model: HookedModel) -> Any:
    """The tokenizer of a language model; an `InputError` where it has none."""
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise InputError("the model must have a tokenizer, as those of ms.language_model have; got one without")
    return tokenizer


def device_of(model: HookedModel) -> torch.device:
    """The device of the model."""
    return next(iter(model.named_parameters()))[1].device


def repeated(model: HookedModel, *, n: int, seed: int) -> Batch:
    """Random words shown twice, after the token that begins a text where there is one.

    There are `LENGTH` of them, or as many as the model has words or places for. Scored from the first word of the
    second showing on, where the next is known.
    """
    tokenizer = tokenizer_of(model)
    first, words = tokenizer.bos_token_id, ordinary(tokenizer, model.cfg.d_vocab)
    length = min(LENGTH, len(words), (model.cfg.n_ctx - (first is not None)) // 2)
    return repeated_tokens(model, n=n, length=length, tokens=words, first_token=first, seed=seed).to(device_of(model))


def other_words(batch: Batch, *, seed: int) -> Int[Tensor, "batch pos"]:
    """Foils: at every position another token of the same sequence, drawn among those that are not due there."""
    n, n_pos = batch.inputs.shape
    scores = torch.rand(n, n_pos, n_pos, generator=generator(seed, "foils")).to(batch.inputs.device)
    due = batch.inputs[:, None, :] == batch.targets[:, :, None]
    front = torch.zeros_like(due)
    front[:, :, 0] = True  # what begins a text is no word
    return batch.inputs.gather(1, scores.masked_fill(due | front, -1.0).argmax(2))


def facts(model: HookedModel) -> PromptPairs:
    """Pairs of prompts: a fact, and the same fact about another subject with as many tokens and another answer.

    Latents `S`, the last token of the subject, and `last`. Answers are told apart by their first tokens; a fact without
    a partner is left out. Raises InputError where no fact has one.
    """
    tokenizer = tokenizer_of(model)
    rows = []
    for template, of in FACTS.items():
        keys = {
            subject: (_size(tokenizer, template, subject), _first(tokenizer, answer)) for subject, answer in of.items()
        }
        names = list(of)
        for i, subject in enumerate(names):
            later = [*names[i + 1 :], *names[:i]]
            size, first = keys[subject]
            partner = next((other for other in later if keys[other][0] == size and keys[other][1] != first), None)
            if partner is not None:
                rows.append((template, subject, partner, of[subject], of[partner]))
    if not rows:
        raise InputError("the tokenizer tells no two answers to the facts apart; take a model with another one")
    clean, corrupted = ([Prompt.fill(row[0], S=row[side]) for row in rows] for side in (1, 2))
    answers, foils = ([f" {row[side]}" for row in rows] for side in (3, 4))
    pairs = prompt_pairs(tokenizer, clean, corrupted, answers=answers, foils=foils, name="subject", first_token=True)
    return pairs.to(device_of(model))


def _size(tokenizer: Any, template: str, subject: str) -> int:
    return len(tokenizer(template.format(S=subject), add_special_tokens=False)["input_ids"])


def _first(tokenizer: Any, answer: str) -> int:
    return tokenizer(f" {answer}", add_special_tokens=False)["input_ids"][0]


def single_names(model: HookedModel) -> list[str]:
    """Names that are one token, and no other's."""
    tokenizer = tokenizer_of(model)
    tokens = {name: tokenizer(f" {name}", add_special_tokens=False)["input_ids"] for name in NAMES}
    single = {name: found[0] for name, found in tokens.items() if len(found) == 1}
    return [name for name, number in single.items() if list(single.values()).count(number) == 1]


def givers(model: HookedModel, *, n: int, seed: int, apart: bool = False) -> PromptPairs:
    """Stories of two names, one of which is repeated as S2: the other, the IO name, is right; both orders in turn.

    With `apart` a third name stands as S2, so that nothing says which name is right. Only the first sides of the pairs
    are meant to be read: the second sides repeat the other name, for the foil. Latents `A`, `B`, `S`, `last`, `story`,
    and `IO` and `S1`, the first occurrences. Raises InputError where fewer than three of the names are single tokens.
    """
    known = single_names(model)
    if len(known) < 3:
        raise InputError(f"three names must be single tokens; the tokenizer has {len(known)} of them")
    draws = generator(seed, "names")
    clean, corrupted, answers, foils, first_due = [], [], [], [], []
    for i in range(n):
        a, b, c = (known[int(j)] for j in torch.randperm(len(known), generator=draws)[:3])
        story, is_first = STORIES[i % len(STORIES)], (i // len(STORIES)) % 2 == 0
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
        "story": torch.arange(n) % len(STORIES),
    }
    return replace(pairs, clean=replace(pairs.clean, known=latents)).to(device_of(model))


def conflicts(model: HookedModel) -> tuple[Batch, Batch]:
    """Texts that end with a word which another word follows in the text than elsewhere, and plain ones.

    In both the answer is the successor in the text. The targets of the plain ones are the successors elsewhere, so that
    each batch gives the other its foils: see `successors`. Words are told apart by their first tokens; those whose two
    successors begin alike are left out.
    """
    tokenizer = tokenizer_of(model)
    rows = [(word, LOCAL[i % len(LOCAL)], elsewhere) for i, (word, elsewhere) in enumerate(GLOBAL.items())]
    rows = [row for row in rows if _first(tokenizer, row[1]) != _first(tokenizer, row[2])]
    text = [Prompt.fill(CONFLICT, A=word, B=here) for word, here, _ in rows]
    plain = [Prompt.fill(PLAIN, A=word) for word, _, _ in rows]
    here, elsewhere = ([f" {row[side]}" for row in rows] for side in (1, 2))
    device = device_of(model)
    return (
        prompts(tokenizer, text, answers=here, first_token=True).to(device),
        prompts(tokenizer, plain, answers=elsewhere, first_token=True).to(device),
    )


def successors(batch: Batch, other: Batch) -> Int[Tensor, "batch pos"]:
    """Foils for one batch: the answer in the same row of the other."""
    due = other.targets[other.scored]
    return due[:, None].expand(*batch.inputs.shape)
