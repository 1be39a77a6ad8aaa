"""Balanced brackets: START, up to forty brackets, END, padding; at START the class says whether they are balanced.

Read from the right, the *elevation* goes up with every `)` and down with every `(`. Brackets are balanced if it is
never negative and ends at zero. So there are two faults, a *wrong total* and a *negative* elevation, and four kinds of
sequences: balanced, either fault alone, or both.

A kind is drawn, then a length, the even length 2k in proportion to 1/k, then a sequence of that kind and length, all
alike. Shares of the kinds are those of the original, whose distribution of lengths is not stated.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import TASKS, BaseTask, Batch, InputError
from mnemoscope.core import in_range, one_of

SPLITS = ("train", "test")
START, PAD, END, OPEN, CLOSE = range(5)
KINDS = ("balanced", "total", "negative", "both")
"""Without a fault, with one of them alone, and with both."""


@dataclass(frozen=True, kw_only=True)
class Brackets(BaseTask):
    """Tell balanced brackets from others."""

    name: ClassVar[str] = "brackets"
    references: ClassVar[tuple[str, ...]] = ("uniform", "answer", "total_only", "negative_only")
    corruptions: ClassVar[tuple[str, ...]] = ("change_answer", "other_of_kind")
    classes: ClassVar[tuple[str, ...]] = ("unbalanced", "balanced")
    symbols: ClassVar[tuple[str, ...]] = ("START", "PAD", "END", "(", ")")

    max_pairs: int = 20
    """Half of the largest number of brackets."""
    balanced: float = 0.46
    """Share of balanced sequences."""
    total: float = 0.18
    """Share of the unbalanced that have a wrong total only."""
    negative: float = 0.18
    """Share of the unbalanced that have a negative elevation only."""

    def __post_init__(self) -> None:
        in_range("task.max_pairs", self.max_pairs, 1, math.inf)
        for name in ("balanced", "total", "negative"):
            in_range(f"task.{name}", getattr(self, name), 0, 1)
        in_range("task.total + task.negative", self.total + self.negative, 0, 1)

    @property
    def d_vocab(self) -> int:
        """START, PAD, END and the two brackets."""
        return len(self.symbols)

    @property
    def n_ctx(self) -> int:
        """START, the brackets and END."""
        return 2 * self.max_pairs + 2

    # ---- generation

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences; both splits are the same distribution."""
        one_of("split", split, SPLITS)
        unbalanced = 1 - self.balanced
        shares = [self.total, self.negative, 1 - self.total - self.negative]
        weights = torch.tensor([self.balanced, *(unbalanced * share for share in shares)], device=generator.device)
        return self.of_kinds(weights.multinomial(n, replacement=True, generator=generator), generator=generator)

    def of_kinds(
        self,
        kinds: Int[Tensor, " batch"],
        *,
        generator: torch.Generator,
        pairs: Int[Tensor, " batch"] | None = None,
    ) -> Batch:
        """A sequence of each of these kinds, numbers in `KINDS`, with so many `pairs`; none: drawn."""
        n, device = len(kinds), generator.device
        if pairs is None:
            weights = 1 / torch.arange(1, self.max_pairs + 1, device=device)
            pairs = 1 + weights.multinomial(n, replacement=True, generator=generator)
        rises, length = _rises(self.max_pairs).to(device), 2 * pairs
        draws = torch.rand(n, self.n_ctx - 2, generator=generator, device=device, dtype=torch.float32)
        inputs = torch.full((n, self.n_ctx), PAD, device=device)
        height, below = torch.zeros_like(kinds), torch.zeros_like(kinds)
        rows, place = torch.arange(n, device=device), length.clone()
        for step in range(self.n_ctx - 2):
            left = (length - step).clamp(min=0)
            up = draws[:, step] < rises[kinds, left, height + self.n_ctx, below]
            inputs[rows, place] = torch.where(up, CLOSE, OPEN)
            height = height + torch.where(up, 1, -1) * (left > 0)
            below = below | (height < 0).long()
            place = (place - 1).clamp(min=0)  # a row that is read to its start goes on writing there
        inputs[:, 0] = START
        inputs[rows, length + 1] = END
        return self.batch(inputs)

    def batch(self, inputs: Int[Tensor, "batch pos"]) -> Batch:
        """The sequences of these tokens, with their answers."""
        targets, scored = torch.zeros_like(inputs), torch.zeros_like(inputs, dtype=torch.bool)
        targets[:, 0] = _kind(inputs) == 0
        scored[:, 0] = True
        lengths = (inputs != PAD).sum(1)
        return Batch(
            inputs=inputs,
            targets=targets,
            scored=scored,
            lengths=lengths,
            derive=self.latents,
            symbol=symbol_of,
        )

    def from_text(self, *texts: str) -> Batch:
        """The sequences of these strings of brackets, padded to the context; raises InputError for other characters."""
        inputs = torch.full((len(texts), self.n_ctx), PAD)
        for row, text in enumerate(texts):
            for sign in text:
                one_of("a bracket", sign, "()")
            in_range("the number of brackets", len(text), 1, self.n_ctx - 2)
            tokens = [START, *(OPEN if sign == "(" else CLOSE for sign in text), END]
            inputs[row, : len(tokens)] = torch.tensor(tokens)
        return self.batch(inputs)

    def parse(self, text: str) -> Batch:
        """The one sequence of a string of brackets."""
        return self.from_text(text.replace(" ", ""))

    # ---- what the generator knows

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """Facts that follow from the tokens.

        `kind`, a number in `KINDS`; `elevation` (batch, pos) of the brackets from there to the right, `total` that of
        all, `lowest` the smallest one.
        """
        heights = elevation(batch.inputs)
        lowest = heights.amin(1).clamp(max=0)
        return {"kind": _kind(batch.inputs), "elevation": heights, "total": heights[:, 0], "lowest": lowest}

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """The answer, by kind: `balanced`, `total`, `negative` and `both`."""
        kind = batch.latents["kind"]
        return {name: batch.scored & (kind == i)[:, None] for i, name in enumerate(KINDS)}

    # ---- exact predictors

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos classes"]:
        """Probabilities of the classes, float64; NaN at positions that are not scored.

        `uniform`: both alike. `answer`: the right one. `total_only` and `negative_only`: look for one fault, and call
        everything else balanced.
        """
        one_of("reference", name, self.references)
        kind = batch.latents["kind"]
        allowed = {"answer": (0,), "total_only": (0, 2), "negative_only": (0, 1)}
        if name == "uniform":
            yes = torch.full((len(batch),), 0.5, dtype=torch.double, device=batch.inputs.device)
        else:
            yes = torch.isin(kind, torch.tensor(allowed[name], device=kind.device)).double()
        result = yes.new_full((*batch.inputs.shape, len(self.classes)), math.nan)
        result[:, 0] = torch.stack((1 - yes, yes), -1)
        return result.masked_fill(~batch.scored[..., None], math.nan)

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Counterfactuals.

        - `change_answer`: another sequence of the same length, balanced where this one is not. Where it is, the other
          has either fault alone or both, each as likely.
        - `other_of_kind`: a sequence of the same kind and of another length. The answer stays.

        Raises InputError where a sequence has an odd number of brackets.
        """
        one_of("kind", kind, self.corruptions)
        n, device = batch.known_lengths.cpu() - 2, generator.device
        if (n % 2).any() or (n < 2).any():
            raise InputError("pairs need sequences of an even number of brackets, at least two; got others")
        kinds, pairs = batch.latents["kind"].to(device), (n // 2).to(device)
        if kind == "change_answer":
            faults = torch.randint(1, len(KINDS), kinds.shape, generator=generator, device=device)
            kinds = torch.where(kinds == 0, faults, 0)
        else:
            shift = torch.randint(1, max(self.max_pairs, 2), kinds.shape, generator=generator, device=device)
            pairs = (pairs - 1 + shift) % self.max_pairs + 1
        result = self.of_kinds(kinds, pairs=pairs, generator=generator).to(batch.inputs.device)
        return replace(result, weights=batch.weights, scored=batch.scored)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """`answer_changed`: the share of the pairs with different answers."""
        return {"answer_changed": float((clean.targets != corrupted.targets).any(1).double().mean())}


def symbol_of(token: int) -> str:
    """The name of a token."""
    return Brackets.symbols[token]


def elevation(inputs: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
    """`)` minus `(` from each place to the right end."""
    change = (inputs == CLOSE).long() - (inputs == OPEN).long()
    return change.flip(1).cumsum(1).flip(1)


def _kind(inputs: Int[Tensor, "batch pos"]) -> Int[Tensor, " batch"]:
    heights = elevation(inputs)
    return (heights[:, 0] != 0).long() + 2 * (heights < 0).any(1).long()


@lru_cache
def _rises(max_pairs: int) -> Float[Tensor, "kind left height below"]:
    """Probability that the next bracket from the right is `)`, for sequences of a kind that are all alike.

    By the number of brackets `left`, the height so far (from -n_ctx on) and whether it was negative: the share of ways
    to end as the kind does that begin with `)`.
    """
    n, middle = 2 * max_pairs, 2 * max_pairs + 2
    ways = torch.zeros(len(KINDS), n + 1, 2 * middle + 1, 2, dtype=torch.double)
    heights = torch.arange(-middle, middle + 1)
    for number in range(len(KINDS)):
        wrong, below = divmod(number, 2)[::-1]
        ways[number, 0, :, below] = ((heights != 0) if wrong else (heights == 0)).double()
    rises = torch.zeros_like(ways)
    for left in range(1, n + 1):
        up, down = torch.zeros_like(ways[:, 0]), torch.zeros_like(ways[:, 0])
        up[:, :-1] = ways[:, left - 1, 1:]
        down[:, 1:] = ways[:, left - 1, :-1]
        down[:, heights <= 0, 0] = down[:, heights <= 0, 1]  # one step down from zero, and the flag is set
        ways[:, left] = up + down
        rises[:, left] = torch.where(ways[:, left] > 0, up / ways[:, left].clamp(min=1), 0)
    return rises.float()


TASKS.add(Brackets.name, Brackets)
