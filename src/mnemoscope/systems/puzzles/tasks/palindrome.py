"""Palindromes: START, twenty values, END; at END the class says whether the sequence is its own mirror image.

Half of the sequences are palindromes. In the others each of the ten values of the second half is redrawn with
probability ½ (`redrawn="coin"`, as in the original), or a number of them that is drawn uniformly from 1 to 10
(`redrawn="uniform"`). A redrawn value may be the old one, so that a few more are palindromes.

*Pairs* are counted from the outside: pair 0 is the first and the last value. A pair is *mirrored* if its two values are
equal.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import TASKS, BaseTask, Batch
from mnemoscope.core import POSITION_NAMES, in_range, one_of

SPLITS = ("train", "test")
Redrawn = Literal["coin", "uniform"]


@dataclass(frozen=True, kw_only=True)
class Palindrome(BaseTask):
    """Tell palindromes from sequences with broken pairs."""

    name: ClassVar[str] = "palindrome"
    references: ClassVar[tuple[str, ...]] = ("uniform", "answer", "same_values", "outer_half")
    corruptions: ClassVar[tuple[str, ...]] = ("change_answer", "move_faults", "rename_values")
    classes: ClassVar[tuple[str, ...]] = ("broken", "palindrome")

    n_values: int = 31
    """Values, numbered from 0; START and END are the two tokens after them."""
    half: int = 10
    """Pairs, half of the values of a sequence."""
    redrawn: Redrawn = "coin"
    """The redrawn values of a sequence that is no palindrome: each with probability ½, or a uniform number of them."""

    def __post_init__(self) -> None:
        in_range("task.n_values", self.n_values, 2, math.inf)
        in_range("task.half", self.half, 1, math.inf)
        one_of("task.redrawn", self.redrawn, get_args(Redrawn))

    @property
    def d_vocab(self) -> int:
        """The values, START and END."""
        return self.n_values + 2

    @property
    def n_ctx(self) -> int:
        """START, the values and END."""
        return 2 * self.half + 2

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the tokens."""
        return (*map(str, range(self.n_values)), "START", "END")

    def symbol_of(self, token: int) -> str:
        """The name of a token."""
        return self.symbols[token]

    def parse(self, text: str) -> Batch:
        """The one sequence of these values; raises InputError for another number of them, or other values."""
        words = text.replace(",", " ").split()
        for word in words:
            one_of("a value", word, self.symbols[: self.n_values])
        in_range("the number of values", len(words), 2 * self.half, 2 * self.half)
        values = torch.tensor([[int(word) for word in words]])
        return self.batch(values[:, : self.half], values[:, self.half :].flip(1))

    # ---- generation

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences; both splits are the same distribution."""
        one_of("split", split, SPLITS)
        device = generator.device
        size = (n, self.half)
        first, other = (torch.randint(self.n_values, size, generator=generator, device=device) for _ in range(2))
        draws = torch.rand(n, self.half + 2, generator=generator, device=device, dtype=torch.float32)
        scores, number = draws[:, : self.half], 1 + (draws[:, -1:] * self.half).long()
        drawn = scores < 0.5 if self.redrawn == "coin" else scores.argsort(1).argsort(1) < number
        return self.batch(first, torch.where(drawn & (draws[:, -2:-1] < 0.5), other, first))

    def batch(self, first: Int[Tensor, "batch pair"], second: Int[Tensor, "batch pair"]) -> Batch:
        """The sequences whose pairs, from the outside, have these values in the first and in the second half."""
        n = len(first)
        start, end = (first.new_full((n, 1), self.n_values + i) for i in range(2))
        inputs = torch.cat((start, first, second.flip(1), end), 1)
        targets = torch.zeros_like(inputs)
        targets[:, -1] = (first == second).all(1)
        scored = (torch.arange(self.n_ctx, device=first.device) == self.n_ctx - 1).expand(n, -1)
        return Batch(
            inputs=inputs,
            targets=targets,
            scored=scored,
            derive=self.latents,
            symbol=self.symbol_of,
        )

    def from_tokens(self, inputs: Int[Tensor, "batch pos"]) -> Batch:
        """The sequences of these tokens, with START and END."""
        values = inputs[:, 1:-1]
        return self.batch(values[:, : self.half], values[:, self.half :].flip(1))

    def pairs(self, batch: Batch) -> tuple[Int[Tensor, "batch pair"], Int[Tensor, "batch pair"]]:
        """The values of the first and of the second half, by pair from the outside."""
        values = batch.inputs[:, 1:-1]
        return values[:, : self.half], values[:, self.half :].flip(1)

    def broken_only(self, n: int, pair: int, *, generator: torch.Generator) -> Batch:
        """`n` sequences in which one pair is broken, and no other."""
        in_range("pair", pair, 0, self.half - 1)
        size, device = (n, self.half), generator.device
        first = torch.randint(self.n_values, size, generator=generator, device=device)
        second = first.clone()
        second[:, pair] = self._another(first[:, pair], generator)
        return self.batch(first, second)

    def second_place(self, pair: int) -> int:
        """The position of the value of a pair in the second half; that in the first is the number of the pair + 1."""
        return self.n_ctx - 2 - pair

    def _another(self, values: Int[Tensor, "*rows"], generator: torch.Generator) -> Int[Tensor, "*rows"]:
        """Other values than these."""
        step = torch.randint(1, self.n_values, values.shape, generator=generator, device=generator.device)
        return (values + step.to(values.device)) % self.n_values

    # ---- what the generator knows

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """Facts that follow from the tokens.

        `mirrored` (batch, pair), `n_broken`, and `broken_pair`, the broken pair where there is one only, -1 elsewhere.
        """
        first, second = self.pairs(batch)
        mirrored = first == second
        n_broken = (~mirrored).sum(1)
        broken_pair = torch.where(n_broken == 1, (~mirrored).int().argmax(1), -1)
        return {"mirrored": mirrored, "n_broken": n_broken, "broken_pair": broken_pair}

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """`palindrome` and `broken`: the answer, by class."""
        is_palindrome = batch.targets[:, -1:] == 1
        return {"palindrome": batch.scored & is_palindrome, "broken": batch.scored & ~is_palindrome}

    # ---- exact predictors

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos classes"]:
        """Probabilities of the classes, float64; NaN at positions that are not scored.

        `uniform`: both alike. `answer`: the right one. `same_values`: looks whether both halves have the same values,
        in whatever order. `outer_half`: looks at the outer half of the pairs only.
        """
        one_of("reference", name, self.references)
        first, second = self.pairs(batch)
        outer = slice(None, (self.half + 1) // 2)
        says = {
            "uniform": lambda: torch.full((len(batch),), 0.5, dtype=torch.double),
            "answer": lambda: (first == second).all(1),
            "same_values": lambda: (first.sort(1).values == second.sort(1).values).all(1),
            "outer_half": lambda: (first == second)[:, outer].all(1),
        }
        yes = says[name]().double().to(batch.inputs.device)
        result = yes.new_full((*batch.inputs.shape, len(self.classes)), math.nan)
        result[:, -1] = torch.stack((1 - yes, yes), -1)
        return result.masked_fill(~batch.scored[..., None], math.nan)

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs.

        - `change_answer`: one pair of a palindrome is broken; every pair of another sequence is mended. The answer
          changes.
        - `move_faults`: pairs change places, so that others are broken. The answer stays.
        - `rename_values`: every value stands for another one, throughout the sequence. The answer stays.

        New values of broken pairs stand in the second half.
        """
        one_of("kind", kind, self.corruptions)
        first, second = self.pairs(batch)
        device, rows = first.device, torch.arange(len(batch), device=first.device)
        pair = torch.randint(self.half, (len(batch),), generator=generator, device=generator.device).to(device)
        mirrored = first == second
        changed = second.clone()
        if kind == "change_answer":
            changed[rows, pair] = self._another(first[rows, pair], generator)
            changed = torch.where(mirrored.all(1)[:, None], changed, first)
        elif kind == "move_faults":
            shift = torch.randint(1, max(self.half, 2), (len(batch), 1), generator=generator, device=generator.device)
            order = (torch.arange(self.half, device=device) + shift.to(device)) % self.half
            first, changed = first.gather(1, order), second.gather(1, order)
        else:
            scores = torch.rand(
                len(batch), self.n_values, generator=generator, device=generator.device, dtype=torch.float32
            )
            names = scores.argsort(1).to(device)
            first, changed = names.gather(1, first), names.gather(1, second)
        return replace(self.batch(first, changed), weights=batch.weights, scored=batch.scored)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """`answer_changed`: the share of the pairs with different answers."""
        return {"answer_changed": float((clean.targets != corrupted.targets).any(1).double().mean())}


def position_names(task: Palindrome) -> list[str]:
    """START, a0 … a9, b9 … b0, END: by pair from the outside."""
    first, second = ([f"{side}{pair}" for pair in range(task.half)] for side in "ab")
    return ["START", *first, *second[::-1], "END"]


TASKS.add(Palindrome.name, Palindrome)
POSITION_NAMES.add(Palindrome.name, position_names)
