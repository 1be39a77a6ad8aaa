"""The questions: repeated random tokens, facts about two subjects, and two names of which one is said twice.

Fixed seeds, one for choosing heads, one for the reference of means and one for the questions, give every model with one
tokenizer the same questions.
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from mnemoscope import Batch, HookedModel, InputError, Prompt, PromptPairs, generator, prompt_pairs, prompts
from mnemoscope.analyses import repeated_tokens
from mnemoscope.systems.language_models.words import CONFLICT, FACTS, GLOBAL, LOCAL, NAMES, PLAIN, STORIES, ordinary

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
