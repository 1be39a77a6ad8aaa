"""Matching brackets: words such as ([]{}), in which every closing bracket has the type of the one that it closes.

The model reads a word from left to right. Where a closing bracket comes next, it has to say of which type: that of the
innermost bracket that is still open. That a closing bracket comes next need not be predicted. Tokens
0..n_types-1 are the opening brackets, n_types..2*n_types-1 the closing ones. All words are equally likely, and they
are split into training and test words.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

import mnemoscope as ms
from mnemoscope.core import in_range, one_of

OPENING, CLOSING = "([{<", ")]}>"


@dataclass(frozen=True, kw_only=True)
class MatchingBrackets(ms.BaseTask):
    """Name the closing bracket that matches."""

    name: ClassVar[str] = "matching-brackets"
    references: ClassVar[tuple[str, ...]] = ("matching", "latest")
    corruptions: ClassVar[tuple[str, ...]] = ("change_type",)

    n_types: int = 3
    """Types of brackets."""
    n_pairs: int = 4
    """Pairs of brackets in a word."""
    max_depth: int = 3
    """Brackets that can be open at the same time."""
    split_seed: int | None = None
    """Seed of the split into training and test words; none: the seed of the run."""

    def __post_init__(self) -> None:
        in_range("task.n_types", self.n_types, 2, len(OPENING))
        in_range("task.n_pairs", self.n_pairs, 2, 5)
        in_range("task.max_depth", self.max_depth, 1, self.n_pairs)

    @property
    def d_vocab(self) -> int:
        """Opening and closing brackets."""
        return 2 * self.n_types

    @property
    def answers(self) -> range:
        """The closing brackets."""
        return range(self.n_types, self.d_vocab)

    @property
    def n_ctx(self) -> int:
        """All of a word but its last bracket."""
        return 2 * self.n_pairs - 1

    @property
    def symbols(self) -> str:
        """What the tokens are called."""
        return OPENING[: self.n_types] + CLOSING[: self.n_types]

    # ---- generation

    def batch(self, words: Int[Tensor, "batch bracket"]) -> ms.Batch:
        """Given words; scored where a closing bracket comes next."""
        targets = words[:, 1:]
        return ms.Batch(inputs=words[:, :-1], targets=targets, scored=targets >= self.n_types, derive=self.latents)

    def latents(self, batch: ms.Batch) -> Mapping[str, Tensor]:
        """What follows from the brackets so far.

        Returns:
            `match` (batch, pos): position of the innermost open bracket, -1 where none is open; `distance`
            (batch, pos): from there to the next bracket; `opener` (batch,): `match` at the last position.
        """
        match = innermost_open(batch.inputs < self.n_types)
        distance = torch.arange(1, match.shape[1] + 1, device=match.device) - match
        return {"match": match, "distance": torch.where(match < 0, -1, distance), "opener": match[:, -1]}

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> ms.Batch:
        """`n` independent words of `split`."""
        words = words_of(self, split).to(generator.device)
        return self.batch(words[torch.randint(len(words), (n,), generator=generator, device=generator.device)])

    def enumerate(self, *, split: str) -> ms.Batch:
        """Every word of `split` once, all with the same weight."""
        batch = self.batch(words_of(self, split))
        return replace(batch, weights=torch.full((len(batch),), 1 / len(batch)))

    def corrupt(self, batch: ms.Batch, *, kind: str, generator: torch.Generator) -> ms.Batch:
        """`change_type`: the pair that the last bracket closes gets another type.

        The last answer changes, the others stay; of the inputs the opening bracket of that pair alone changes.
        """
        one_of("kind", kind, self.corruptions)
        words = torch.cat((batch.inputs, batch.targets[:, -1:]), 1)
        rows, opener = torch.arange(len(words), device=words.device), batch.latents["opener"]
        shift = torch.randint(1, self.n_types, (len(words),), generator=generator, device=generator.device)
        new = (words[rows, opener] + shift.to(words.device)) % self.n_types
        words[rows, opener], words[:, -1] = new, new + self.n_types
        return replace(self.batch(words), weights=batch.weights)

    def parse(self, text: str) -> ms.Batch:
        """A word such as ([]), or its beginning; the last bracket of a whole word is not read but predicted.

        Raises:
            InputError: There is another symbol, there are too few or too many, or a bracket closes no open one.
        """
        in_range("the number of brackets", len(text), 1, self.n_ctx + 1)
        for symbol in text:
            one_of("a bracket", symbol, self.symbols)
        tokens = torch.tensor([[self.symbols.index(symbol) for symbol in text]])
        before = torch.nn.functional.pad(innermost_open(tokens < self.n_types), (1, 0), value=-1)[0, :-1]
        for place, (token, match) in enumerate(zip(tokens[0].tolist(), before.tolist(), strict=True)):
            if token >= self.n_types and (match < 0 or int(tokens[0, match]) != token - self.n_types):
                raise ms.InputError(f"a closing bracket must match the innermost open one; got {text[: place + 1]!r}")
        if len(text) > self.n_ctx:
            return self.batch(tokens)
        batch = self.batch(torch.nn.functional.pad(tokens, (0, 1)))  # the bracket after the last one is not known
        return replace(batch, scored=batch.scored & (torch.arange(len(text)) < len(text) - 1))

    # ---- what is measured against

    def reference(self, batch: ms.Batch, name: str) -> Float[Tensor, "batch pos d_vocab"]:
        """`matching`: closes the innermost open bracket; `latest`: the latest opening one, whether closed or not.

        NaN where no bracket is open, and at positions that are not scored.
        """
        one_of("reference", name, self.references)
        place = torch.arange(batch.inputs.shape[1], device=batch.inputs.device)
        latest = torch.where(batch.inputs < self.n_types, place, -1).cummax(1).values
        match = batch.latents["match"] if name == "matching" else latest
        answer = batch.inputs.gather(1, match.clamp(min=0)) % self.n_types + self.n_types
        exact = torch.nn.functional.one_hot(answer, self.d_vocab).double()
        defined = batch.scored & (innermost_open(batch.inputs < self.n_types) >= 0)
        return torch.where(defined[..., None], exact, torch.nan)

    def skills(self, batch: ms.Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """`farther`: others were opened and closed since the bracket to close; `adjacent`: it is the latest."""
        distance = batch.latents["distance"]
        return {"farther": batch.scored & (distance > 1), "adjacent": batch.scored & (distance == 1)}


def innermost_open(opening: Bool[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
    """Position of the innermost bracket that is open after every bracket; -1 where none is."""
    depth, place = torch.where(opening, 1, -1).cumsum(1), torch.arange(opening.shape[1], device=opening.device)
    same = (depth[:, None, :] == depth[..., None]) & opening[:, None, :] & (place <= place[:, None])
    return torch.where(same, place, -1).amax(-1)


@lru_cache(maxsize=64)
def words_of(task: MatchingBrackets, split: str) -> Int[Tensor, "word bracket"]:
    """Four fifths of all words for `train`, the rest for `test`.

    Raises:
        InputError: There is no such split.
    """
    one_of("split", split, ("train", "test"))
    words = every_word(task.n_types, task.n_pairs, task.max_depth)
    order = torch.randperm(len(words), generator=ms.generator(task.split_seed or 0, "split"))
    n_train = round(0.8 * len(words))
    return words[order[:n_train] if split == "train" else order[n_train:]]


@lru_cache
def every_word(n_types: int, n_pairs: int, max_depth: int) -> Int[Tensor, "word bracket"]:
    """All words: every way to nest the pairs, with every choice of types."""
    steps = torch.tensor(list(itertools.product((1, -1), repeat=2 * n_pairs)))
    depth = steps.cumsum(1)
    opening = steps[(depth >= 0).all(1) & (depth <= max_depth).all(1) & (depth[:, -1] == 0)] > 0
    types = torch.cartesian_prod(*[torch.arange(n_types)] * n_pairs)
    pair = opening.cumsum(1) - 1  # right for opening brackets; closing ones have the pair of their match
    closed = torch.nn.functional.pad(innermost_open(opening), (1, 0))[:, :-1].clamp(min=0)
    pair = torch.where(opening, pair, pair.gather(1, closed))
    return (types[:, pair] + n_types * ~opening).flatten(0, 1)


ms.TASKS.add(MatchingBrackets.name, MatchingBrackets)
