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

from mnemoscope import TASKS, BaseTask, Batch
from mnemoscope.core import in_range, one_of

SPLITS = ("train", "test")


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
    def n_ctx(self) -> int:
        """The values of a sequence."""
        return self.length

    # ---- generation

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences; both splits are the same distribution."""
        one_of("split", split, SPLITS)
        device = generator.device
        sizes = torch.randint(self.largest + 1, (n, self.length), generator=generator, device=device)
        draws = torch.rand(n, self.length, 2, generator=generator, device=device, dtype=torch.float32)
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

        - `turn_sum`: one random value is replaced so that the last sum gets another sign. The answer changes. Where no
          single value can do that, those that hold the sum most are turned before.
        - `shift_sum`: one random value is replaced so that the last sum changes, and its sign does not. Where the sum
          is zero, the smallest value grows by one and the largest shrinks by one. The answer stays.
        - `reorder`: the values come in another order. The last sum stays.
        """
        one_of("kind", kind, self.corruptions)
        changed = self.values(batch).clone()
        n, device = len(changed), changed.device
        draws = torch.rand(
            n, self.length, self.d_vocab, generator=generator, device=generator.device, dtype=torch.float32
        ).to(device)
        if kind == "reorder":
            changed = changed.gather(1, draws[:, : changed.shape[1], 0].argsort(1))
        elif kind == "turn_sum":
            far = ~self._replaceable(changed, same=False).flatten(1).any(1)
            while far.any():
                held = changed[far]
                side = held.sum(1, keepdim=True).sign()
                changed[far] = held.scatter(1, (held * side).argmax(1, keepdim=True), -side * self.largest)
                far = ~self._replaceable(changed, same=False).flatten(1).any(1)
            self._replace_one(changed, draws, same=False)
        else:
            zero = changed.sum(1) == 0
            step = torch.zeros_like(changed).scatter_add(1, changed.argmin(1)[:, None], torch.ones_like(changed[:, :1]))
            step = step.scatter_add(1, changed.argmax(1)[:, None], -torch.ones_like(changed[:, :1]))
            shifted = changed[~zero]
            self._replace_one(shifted, draws[~zero], same=True)
            changed[zero] += step[zero]
            changed[~zero] = shifted
        return replace(self.batch(changed), weights=batch.weights, scored=batch.scored)

    def _replaceable(self, values: Int[Tensor, "batch pos"], *, same: bool) -> Bool[Tensor, "batch pos value"]:
        """True where a value in place of another changes the last sum and keeps its sign, or gives it another one."""
        new = torch.arange(-self.largest, self.largest + 1, device=values.device)
        total = values.sum(1)[:, None, None]
        after = total - values[..., None] + new
        return ((after.sign() == total.sign()) == same) & (after != total)

    def _replace_one(
        self, values: Int[Tensor, "batch pos"], draws: Float[Tensor, "batch pos value"], *, same: bool
    ) -> None:
        """Replace one value of every sequence, drawn alike among all replacements that are possible."""
        possible = self._replaceable(values, same=same)
        chosen = draws[:, : values.shape[1]].masked_fill(~possible, -1).flatten(1).argmax(1)
        place, new = chosen // self.d_vocab, chosen % self.d_vocab - self.largest
        values[torch.arange(len(values), device=values.device), place] = new

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """`answer_changed`: the share of the pairs with another answer at the last position."""
        return {"answer_changed": float((clean.targets != corrupted.targets)[:, -1].double().mean())}


TASKS.add(RunningSum.name, RunningSum)
