"""The sign of a running sum: at every position, is the sum so far negative, zero or positive?

A sequence is twenty values from -5 to 5. The size of each is drawn alike from 0 to 5. Its sign is opposite to that of
the sum so far with probability .7 and the same otherwise; where the sum is zero both signs are alike, so that sums stay
near zero. The value v is the token v modulo 11: 0, 1, …, 5, -5, …, -1.

System S10, "running sum". A head that attends to all positions alike writes the mean of the values, not their sum; the
sign is the same.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import TASKS, BaseTask, Batch, InputError
from mnemoscope.core import in_range, one_of

SPLITS = ("train", "test")
_DRAWN = 64
"""Sequences drawn for each that is monitored: about one in twelve is far from zero."""


@dataclass(frozen=True, kw_only=True)
class RunningSum(BaseTask):
    """Say the sign of the sum so far."""

    name: ClassVar[str] = "running-sum"
    references: ClassVar[tuple[str, ...]] = ("uniform", "last_value", "nonzero", "answer")
    corruptions: ClassVar[tuple[str, ...]] = ("turn_sum", "shift_sum", "reorder")
    classes: ClassVar[tuple[str, ...]] = ("negative", "zero", "positive")

    largest: int = 5
    """Values go from minus this to this."""
    length: int = 20
    """Values of a sequence; at least 2."""
    opposite: float = 0.7
    """Probability that a value has the sign opposite to that of the sum so far."""

    def __post_init__(self) -> None:
        in_range("task.largest", self.largest, 1, math.inf)
        in_range("task.length", self.length, 2, math.inf)
        in_range("task.opposite", self.opposite, 0, 1)

    @property
    def d_vocab(self) -> int:
        """The values."""
        return 2 * self.largest + 1

    @property
    def d_vocab_out(self) -> int:
        """The three classes."""
        return len(self.classes)

    @property
    def answers(self) -> range:
        """The numbers of the classes."""
        return range(len(self.classes))

    @property
    def n_ctx(self) -> int:
        """The values of a sequence."""
        return self.length

    # ---- generation

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences; both splits are the same distribution."""
        one_of("split", split, SPLITS)
        device = generator.device
        sizes = torch.randint(self.largest + 1, (n, self.length), generator=generator, device=device)
        draws = torch.rand(n, self.length, 2, generator=generator, device=device)
        turns = torch.where(draws[..., 0] < self.opposite, -1, 1) * sizes
        either = torch.where(draws[..., 1] < 0.5, -1, 1)  # the sign where the sum is zero
        values, total = torch.empty_like(sizes), sizes.new_zeros(n)
        for pos in range(self.length):
            sign = torch.where(total == 0, either[:, pos], total.sign())
            values[:, pos] = sign * turns[:, pos]
            total = total + values[:, pos]
        return self.batch(values)

    def batch(self, values: Int[Tensor, "batch pos"]) -> Batch:
        """The sequences of these values."""
        return Batch(
            inputs=values % self.d_vocab,
            targets=values.cumsum(1).sign() + 1,
            scored=torch.ones_like(values, dtype=torch.bool),
            derive=self.latents,
            symbol=self.symbol,
            classes=self.classes,
        )

    def values(self, batch: Batch) -> Int[Tensor, "batch pos"]:
        """The values of the tokens."""
        return torch.where(batch.inputs > self.largest, batch.inputs - self.d_vocab, batch.inputs)

    def symbol(self, token: int) -> str:
        """The value of a token, with its sign."""
        return f"{token - self.d_vocab if token > self.largest else token:+d}" if token else "0"

    def parse(self, text: str) -> Batch:
        """One sequence as typed; raises InputError where a value is none, or there are too many."""
        words = text.replace(",", " ").split()
        allowed = {self.symbol(token): token for token in range(self.d_vocab)}
        signed = [word if word.startswith(("+", "-")) or word == "0" else f"+{word}" for word in words]
        for word in signed:
            one_of("a value", word, allowed)
        in_range("the number of values", len(words), 1, self.length)
        return self.batch(torch.tensor([[int(word) for word in signed]]))

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """Facts about each position: `value`, `sum` so far and its `sign` (-1, 0, 1), and `mean` so far."""
        values = self.values(batch)
        total = values.cumsum(1)
        place = torch.arange(1, values.shape[1] + 1, device=values.device)
        return {"value": values, "sum": total, "sign": total.sign(), "mean": total / place}

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """The three classes."""
        return {name: batch.scored & (batch.targets == i) for i, name in enumerate(self.classes)}

    def subgroups(self, batch: Batch) -> dict[str, Bool[Tensor, " batch"]]:
        """`near`: one value can be replaced so that the last sum gets another sign; `far`: none can."""
        values = self.values(batch)
        total = values.sum(1, keepdim=True)
        near = ((total - values).abs() - self.largest).amin(1) <= 0
        return {"near": near, "far": ~near}

    def monitor(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences of each subgroup, weighted by its share of the sequences.

        Raises InputError where a subgroup is too rare for that, as in sequences too short to get far from zero.
        """
        drawn = self.sample(_DRAWN * n, split=split, generator=generator)
        groups = self.subgroups(drawn)
        for name, mask in groups.items():
            if int(mask.sum()) < n:
                raise InputError(f"too few of {len(drawn)} sequences are {name}: {int(mask.sum())}; take longer ones")
        rows = torch.cat([mask.nonzero()[:n, 0] for mask in groups.values()])
        weights = torch.cat([(mask.float().mean() / n).expand(n) for mask in groups.values()])
        return replace(drawn.select(rows), weights=weights)

    # ---- exact predictors

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos class"]:
        """Probabilities in float64.

        `uniform`: all classes alike. `last_value`: the sign of the value at the position. `nonzero`: the sign of the
        sum, where that is zero both others alike. `answer`: the sign of the sum.
        """
        one_of("reference", name, self.references)
        if name == "uniform":
            return torch.full((*batch.inputs.shape, len(self.classes)), 1 / len(self.classes), dtype=torch.double)
        values = self.values(batch)
        sign = (values if name == "last_value" else values.cumsum(1)).sign() + 1
        result = torch.nn.functional.one_hot(sign, len(self.classes)).double()
        if name == "nonzero":
            either = torch.tensor([0.5, 0.0, 0.5], dtype=torch.double, device=result.device)
            result = torch.where((sign == 1)[..., None], either, result)
        return result

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs of whole sequences; "the answer" is that at the last position.

        - `turn_sum`: one random value is replaced so that the last sum gets another sign. The answer changes.
        - `shift_sum`: one random value is replaced so that the last sum changes, and its sign does not. The answer
          stays.
        - `reorder`: the values come in another order. The last sum stays.

        Where no single value can do that, as in sequences whose sum is far from zero, InputError says so; select others
        by the latent `sum`.
        """
        one_of("kind", kind, self.corruptions)
        values = self.values(batch)
        n, device = len(values), values.device
        draws = torch.rand(n, self.length, self.d_vocab, generator=generator, device=generator.device).to(device)
        if kind == "reorder":
            changed = values.gather(1, draws[..., 0].argsort(1))
        else:
            new = torch.arange(-self.largest, self.largest + 1, device=device)
            total = values.sum(1)[:, None, None]
            after = total - values[..., None] + new
            same = after.sign() == total.sign()
            possible = (same if kind == "shift_sum" else ~same) & (after != total)
            if not possible.flatten(1).any(1).all():
                raise InputError(f"{kind} needs sequences in which one value can do it; select by the latent sum")
            chosen = draws.masked_fill(~possible, -1).flatten(1).argmax(1)
            changed = values.clone()
            changed[torch.arange(n, device=device), chosen // self.d_vocab] = new[chosen % self.d_vocab]
        return replace(self.batch(changed), weights=batch.weights, scored=batch.scored)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """`answer_changed`: the share of the pairs with another answer at the last position."""
        return {"answer_changed": float((clean.targets != corrupted.targets)[:, -1].double().mean())}


TASKS.add(RunningSum.name, RunningSum)
