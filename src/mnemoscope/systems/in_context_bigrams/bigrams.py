"""Character bigrams: how often one symbol follows another in a text.

The counts of tiny Shakespeare come with the package. A run that was trained on another text holds its table as data.
"""

import csv
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope import InputError

Counts = tuple[tuple[int, int, int], ...]
"""Code points of a symbol and of its successor, and how often that pair occurs; ascending."""

MAX_SYMBOLS = 1024
NEWLINE = "⏎"
"""The symbol with which a newline is typed and shown."""


@dataclass(frozen=True)
class Bigrams:
    """The bigram table of a text; symbols are numbered in the order of their code points.

    Raises:
        InputError: There are fewer than two symbols or too many, a pair stands there twice, or a count is not positive.
    """

    counts: Counts

    def __post_init__(self) -> None:
        if len({pair[:2] for pair in self.counts}) < len(self.counts):
            raise InputError("counts of bigrams must name every pair of symbols once")
        if any(count < 1 for _, _, count in self.counts):
            raise InputError("counts of bigrams must be 1 or more; leave out pairs that do not occur")
        if not 2 <= len(self.symbols) <= MAX_SYMBOLS:
            raise InputError(f"a table of bigrams needs 2 to {MAX_SYMBOLS} symbols; got {len(self.symbols)}")

    @cached_property
    def symbols(self) -> str:
        """Every symbol, in the order of the tokens."""
        return "".join(map(chr, sorted({point for pair in self.counts for point in pair[:2]})))

    @cached_property
    def matrix(self) -> Float[Tensor, "token token"]:
        """Counts, float64: row a symbol, column its successor."""
        place = {ord(symbol): i for i, symbol in enumerate(self.symbols)}
        matrix = torch.zeros(len(place), len(place), dtype=torch.double)
        for first, second, count in self.counts:
            matrix[place[first], place[second]] = count
        return matrix

    @cached_property
    def unigram(self) -> Float[Tensor, " token"]:
        """The share of each symbol among all successors."""
        return self.matrix.sum(0) / self.matrix.sum()

    @cached_property
    def transitions(self) -> Float[Tensor, "token token"]:
        """Probabilities of the successor; a symbol that nothing follows is followed as the unigram says."""
        rows = self.matrix.sum(1, keepdim=True)
        return torch.where(rows > 0, self.matrix / rows.clamp(min=1), self.unigram)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; ⏎ is a newline, unless the table has it as a symbol."""
        text = text if NEWLINE in self.symbols else text.replace(NEWLINE, "\n")
        if unknown := sorted(set(text) - set(self.symbols)):
            raise InputError(f"the table of bigrams has no symbol {unknown[0]!r}; it has {self.symbols!r}")
        return [self.symbols.index(symbol) for symbol in text]


def count_bigrams(text: str) -> Counts:
    """The bigram counts of a text; an `InputError` where it has too few symbols, or too many (see `Bigrams`)."""
    pairs = Counter(pairwise(text))
    counts = tuple(sorted((ord(first), ord(second), count) for (first, second), count in pairs.items()))
    return Bigrams(counts).counts


@lru_cache
def shakespeare() -> Bigrams:
    """Tiny Shakespeare, 65 symbols."""
    source = resources.files("mnemoscope.systems.in_context_bigrams") / "data" / "shakespeare_char_bigrams.csv"
    rows = list(csv.reader(source.read_text().splitlines()))[1:]
    return Bigrams(tuple(sorted((int(first), int(second), int(count)) for first, second, count in rows)))


@lru_cache
def bigrams(counts: Counts | None) -> Bigrams:
    """The table of given counts; none: tiny Shakespeare."""
    return shakespeare() if counts is None else Bigrams(counts)
