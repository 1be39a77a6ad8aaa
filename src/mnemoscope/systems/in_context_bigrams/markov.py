"""Many Markov chains at once, with successors that single sequences prescribe.

The next token is drawn by the alias method (Walker 1977): a distribution over n tokens becomes n equally likely columns
of at most two tokens each, so that a draw takes one column and one comparison, whatever n is. All random numbers are
drawn beforehand; a step then is a look-up for all sequences together.

Character bigrams: how often one symbol follows another in a text.

The counts of tiny Shakespeare come with the package. A run that was trained on another text holds its table as data.
"""

import csv
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from itertools import pairwise

import torch
from jaxtyping import Float, Int
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
    rows = list(csv.reader(source.read_text(encoding="utf-8").splitlines()))[1:]
    return Bigrams(tuple(sorted((int(first), int(second), int(count)) for first, second, count in rows)))


@lru_cache
def bigrams(counts: Counts | None) -> Bigrams:
    """The table of given counts; none: tiny Shakespeare."""
    return shakespeare() if counts is None else Bigrams(counts)


@dataclass(frozen=True, eq=False)
class AliasTable:
    """Distributions, one per state: `threshold` is a column's share of its own token, token `alias` has the rest."""

    threshold: Float[Tensor, "state token"]
    alias: Int[Tensor, "state token"]

    def to(self, device: torch.device | str) -> "AliasTable":
        """The same on another device."""
        return AliasTable(self.threshold.to(device), self.alias.to(device))


def alias_table(probabilities: Float[Tensor, "state token"]) -> AliasTable:
    """The table of given distributions; an `InputError` where a row does not add up to one."""
    rows = probabilities.double()
    if (rows < 0).any() or not torch.allclose(rows.sum(1), torch.ones(len(rows), dtype=torch.double)):
        raise InputError("probabilities must be rows of numbers from 0 that add up to 1")
    threshold, alias = torch.ones_like(rows), torch.arange(rows.shape[1]).repeat(len(rows), 1)
    for state, row in enumerate((rows * rows.shape[1]).tolist()):
        small = [token for token, share in enumerate(row) if share < 1]
        large = [token for token, share in enumerate(row) if share >= 1]
        while small and large:
            token, giver = small.pop(), large[-1]
            threshold[state, token], alias[state, token] = row[token], giver
            row[giver] -= 1 - row[token]
            if row[giver] < 1:
                small.append(large.pop())
    return AliasTable(threshold.float(), alias)


def walk(
    first: Int[Tensor, " batch"],
    table: AliasTable,
    length: int,
    *,
    prescribed: Int[Tensor, "batch token"],
    generator: torch.Generator,
    noise: float = 0.0,
    noise_token: int = 0,
) -> Int[Tensor, "batch pos"]:
    """Sequences of a Markov chain in which some tokens have a successor that the sequence prescribes.

    `length` counts the first token too. `prescribed` has the successor of every token; -1: the chain decides. With
    probability `noise` the `noise_token` stands in the place of a prescribed successor.
    """
    n, n_tokens = prescribed.shape
    shape, device = (length - 1, n), generator.device
    column = torch.randint(n_tokens, shape, generator=generator, device=device)
    level = torch.rand(shape, generator=generator, device=device, dtype=torch.float32)
    replaced = torch.rand(shape, generator=generator, device=device, dtype=torch.float32) < noise if noise else None
    threshold, alias, successor = table.threshold.flatten(), table.alias.flatten(), prescribed.flatten()
    row = torch.arange(n, device=device) * n_tokens
    tokens = first.new_empty(length, n)
    tokens[0] = first
    for step in range(length - 1):
        cell = torch.add(column[step], tokens[step], alpha=n_tokens)
        own = level[step] < threshold.index_select(0, cell)
        drawn = torch.where(own, column[step], alias.index_select(0, cell))
        fixed = successor.index_select(0, row + tokens[step])
        given = fixed if replaced is None else torch.where(replaced[step], noise_token, fixed)
        torch.where(fixed >= 0, given, drawn, out=tokens[step + 1])
    return tokens.T.contiguous()


def stationary(transitions: Float[Tensor, "token next_token"]) -> Float[Tensor, " token"]:
    """The share of every token in the long run, in a chain that forgets where it began."""
    n = len(transitions)
    system = torch.cat((transitions.T - torch.eye(n).to(transitions), transitions.new_ones(1, n)))
    right = torch.nn.functional.one_hot(torch.tensor(n), n + 1).to(transitions)
    return torch.linalg.lstsq(system, right[:, None]).solution[:, 0].clamp(min=0)
