"""Addition modulo p: two numbers, and their sum where the answer is due.

The tokens are the numbers 0 to p - 1. A sequence is a b, with the answer (a + b) mod p at b, or a b =, with the answer
at the last token. There are p² sequences; the split is drawn once a replicate (`split_seed`): a share of them trains,
and the others are the split `test`. Only numbers can be predicted.

System S11 (Zhong et al. 2023, "The clock and the pizza", arXiv 2306.17844: p = 59 and two tokens; Nanda et al. 2023,
"Progress measures for grokking via mechanistic interpretability", arXiv 2301.05217: p = 113 and three).
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import TASKS, BaseTask, Batch, InputError, generator
from mnemoscope.core import POSITION_NAMES, in_range, metrics, one_of

SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class ModularAddition(BaseTask):
    """Add two numbers modulo p."""

    name: ClassVar[str] = "modular-addition"
    references: ClassVar[tuple[str, ...]] = ("uniform", "training_set", "sum")
    corruptions: ClassVar[tuple[str, ...]] = ("other_a", "other_b", "other_sum", "other_difference", "exchanged")
    wordings: ClassVar[tuple[str, ...]] = ("exchanged",)

    modulus: int = 59
    """p; odd, so that every number has a half."""
    equals: bool = False
    """True: an equals sign stands last, and the answer is due there."""
    train_share: float = 0.8
    """Share of the p² sequences that train."""
    split_seed: int | None = None
    """Seed of the split; none: the seed of the run."""

    def __post_init__(self) -> None:
        in_range("task.modulus", self.modulus, 3, math.inf)
        if self.modulus % 2 == 0:
            raise InputError(f"task.modulus must be odd, so that every number has a half; got {self.modulus}")
        in_range("task.n_train", self.n_train, 1, self.modulus**2 - 1)

    @property
    def n_train(self) -> int:
        """Sequences that train."""
        return round(self.train_share * self.modulus**2)

    @property
    def d_vocab(self) -> int:
        """The numbers, and the equals sign where there is one."""
        return self.modulus + self.equals

    @property
    def d_vocab_out(self) -> int:
        """Tokens that can be predicted: the numbers."""
        return self.modulus

    @property
    def answers(self) -> range:
        """All numbers."""
        return range(self.modulus)

    @property
    def n_ctx(self) -> int:
        """Two numbers, and the equals sign where there is one."""
        return 2 + self.equals

    def symbol(self, token: int) -> str:
        """The number, or =."""
        return "=" if token == self.modulus else str(token)

    @property
    def symbols(self) -> list[str]:
        """The names of all tokens."""
        return [self.symbol(token) for token in range(self.d_vocab)]

    # ---- generation

    def trained(self) -> Bool[Tensor, "a b"]:
        """The table of all sums, True where the sequence trains; an `InputError` where no split is chosen yet."""
        if self.split_seed is None:
            raise InputError("task.split_seed is not set: choose one, or take task.for_seed(seed)")
        order = torch.randperm(self.modulus**2, generator=generator(self.split_seed, "split"))
        return (order < self.n_train).view(self.modulus, self.modulus)

    def numbers(self, split: str) -> tuple[Int[Tensor, " batch"], Int[Tensor, " batch"]]:
        """The first and the second number of every sequence of a split."""
        one_of("split", split, SPLITS)
        first, second = (self.trained() == (split == "train")).nonzero().unbind(1)
        return first, second

    def batch(self, first: Int[Tensor, " batch"], second: Int[Tensor, " batch"]) -> Batch:
        """The sequences of these numbers."""
        columns = [first, second] + [torch.full_like(first, self.modulus)] * self.equals
        inputs = torch.stack(columns, 1)
        targets, scored = torch.zeros_like(inputs), torch.zeros_like(inputs, dtype=torch.bool)
        targets[:, -1], scored[:, -1] = (first + second) % self.modulus, True
        return Batch(inputs=inputs, targets=targets, scored=scored, derive=self.latents, symbol=self.symbol)

    def table(self) -> Batch:
        """All p² sequences, row a p + b."""
        every = torch.arange(self.modulus)
        return self.batch(every.repeat_interleave(self.modulus), every.repeat(self.modulus))

    def enumerate(self, *, split: str) -> Batch:
        """All sequences of a split, of equal weight."""
        found = self.batch(*self.numbers(split))
        return replace(found, weights=torch.full((len(found),), 1 / len(found)))

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences of a split, drawn with replacement."""
        first, second = self.numbers(split)
        drawn = torch.randint(len(first), (n,), generator=generator, device=generator.device)
        return self.batch(first.to(drawn.device)[drawn], second.to(drawn.device)[drawn])

    def monitor(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` different sequences of a split, or all where there are fewer."""
        first, second = self.numbers(split)
        drawn = torch.randperm(len(first), generator=generator, device=generator.device)[:n].cpu()
        found = self.batch(first[drawn], second[drawn]).to(generator.device)
        return replace(found, weights=torch.full((len(found),), 1 / len(found), device=generator.device))

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """Facts about each sequence: the numbers `a` and `b`, their `sum` and `difference` a - b, both modulo p."""
        a, b = batch.inputs[:, 0].long(), batch.inputs[:, 1].long()
        return {"a": a, "b": b, "sum": (a + b) % self.modulus, "difference": (a - b) % self.modulus}

    # ---- loss, exact predictors

    def loss(self, outputs: Float[Tensor, "batch pos d_vocab"], batch: Batch) -> Float[Tensor, ""]:
        """Mean cross-entropy of the answers, in nats, in float64."""
        losses = metrics.loss(outputs.double(), batch.targets)
        return (losses * batch.scored).sum() / batch.scored.sum().clamp(min=1)

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab"]:
        """Probabilities, float64; NaN at positions that are not scored.

        `uniform`: all numbers alike. `training_set`: knows the sequences that train by heart, and guesses the others.
        `sum`: the right answer.
        """
        one_of("reference", name, self.references)
        size = (*batch.inputs.shape, self.modulus)
        guess = torch.full(size, 1 / self.modulus, dtype=torch.double, device=batch.inputs.device)
        known = batch.latents
        if name != "uniform":
            answer = torch.nn.functional.one_hot(known["sum"], self.modulus).double()[:, None].expand(size)
            trained = self.trained().to(guess.device)[known["a"], known["b"]] if name == "training_set" else None
            guess = answer if trained is None else torch.where(trained[:, None, None], answer, guess)
        return guess.masked_fill(~batch.scored[..., None], math.nan)

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs, of either split: some of a, b, a + b and a - b change, each by a random number.

        `other_a` and `other_b` change one number. `other_sum` adds the same to both numbers: the difference stays.
        `other_difference` adds to one what it takes from the other: the answer stays. `exchanged`: the numbers change
        places, and the answer stays.
        """
        one_of("kind", kind, self.corruptions)
        a, b = batch.latents["a"], batch.latents["b"]
        by = 1 + torch.randint(self.modulus - 1, a.shape, generator=generator, device=generator.device).to(a.device)
        moved = {"other_a": (1, 0), "other_b": (0, 1), "other_sum": (1, 1), "other_difference": (1, -1)}
        if kind == "exchanged":
            first, second = b, a
        else:
            first, second = ((each + sign * by) % self.modulus for each, sign in zip((a, b), moved[kind], strict=True))
        return replace(self.batch(first, second), weights=batch.weights, scored=batch.scored)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """`answer_changed` and `in_training`: shares of pairs with another answer, and in the training set."""
        there = self.trained().to(corrupted.inputs.device)[corrupted.latents["a"], corrupted.latents["b"]]
        changed = clean.latents["sum"] != corrupted.latents["sum"]
        return {"answer_changed": float(changed.double().mean()), "in_training": float(there.double().mean())}


def position_names(task: ModularAddition) -> list[str]:
    """The first number, the second, and the equals sign."""
    return ["first", "second", "equals"][: task.n_ctx]


TASKS.add(ModularAddition.name, ModularAddition)
POSITION_NAMES.add(ModularAddition.name, position_names)
