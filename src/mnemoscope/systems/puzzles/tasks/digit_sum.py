"""The sum of two numbers of n digits, highest digits first: A0 … A3 + B0 … B3 = C0 … C3.

First digits are below 5, so that the sum has as many digits as its terms. Scored are the n positions at which the next
token is a digit of the sum. Tokens are the digits, then `+`, then `=`. *Place* i is that of the digits Ai, Bi and Ci.

Each digit of the sum is (Ai + Bi + carry) mod 10. The carry comes from the place below where that sums to ten or more,
and from further below where it sums to nine (a *chain*).

System S10 (the algorithmic problem "sum of two numbers" of a public course).
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import TASKS, BaseTask, Batch
from mnemoscope.core import POSITION_NAMES, in_range, one_of

SPLITS = ("train", "test")
BASE = 10
PLUS, EQUALS = BASE, BASE + 1


@dataclass(frozen=True, kw_only=True)
class DigitSum(BaseTask):
    """Add two numbers, digit by digit."""

    name: ClassVar[str] = "digit-sum"
    references: ClassVar[tuple[str, ...]] = ("answer", "without_carry", "without_chain")
    corruptions: ClassVar[tuple[str, ...]] = ("flip_carry", "change_digit", "exchange_numbers")
    wordings: ClassVar[tuple[str, ...]] = ("exchange_numbers",)

    n_digits: int = 4
    """Digits of each number; at least 2."""

    def __post_init__(self) -> None:
        in_range("task.n_digits", self.n_digits, 2, math.inf)

    @property
    def d_vocab(self) -> int:
        """Digits, `+` and `=`."""
        return BASE + 2

    @property
    def answers(self) -> range:
        """The digits."""
        return range(BASE)

    @property
    def n_ctx(self) -> int:
        """Three numbers and two signs."""
        return 3 * self.n_digits + 2

    @property
    def due(self) -> range:
        """The positions after which the digits of the sum are due, highest place first."""
        return range(2 * self.n_digits + 1, 3 * self.n_digits + 1)

    def digit_positions(self, place: int) -> tuple[int, int]:
        """The positions of Ai and Bi."""
        return place, self.n_digits + 1 + place

    def symbol(self, token: int) -> str:
        """The digit, `+` or `=`."""
        return (*map(str, range(BASE)), "+", "=")[token]

    # ---- generation

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` pairs of numbers; both splits are the same distribution."""
        one_of("split", split, SPLITS)
        drawn = torch.rand(n, 2, self.n_digits, generator=generator, device=generator.device, dtype=torch.float32)
        top = torch.full_like(drawn, BASE)
        top[..., 0] = BASE // 2
        return self.batch((drawn * top).long())

    def batch(self, terms: Int[Tensor, "batch term place"]) -> Batch:
        """The sums of these numbers, given by their digits."""
        base, carry = place_sums(terms)
        a, b, signs = terms[:, 0], terms[:, 1], terms.new_tensor([PLUS, EQUALS]).expand(len(terms), -1)
        inputs = torch.cat((a, signs[:, :1], b, signs[:, 1:], (base + carry) % BASE), 1)
        scored = torch.zeros_like(inputs, dtype=torch.bool)
        scored[:, list(self.due)] = True
        return Batch(inputs=inputs, targets=inputs.roll(-1, 1), scored=scored, derive=self.latents, symbol=self.symbol)

    def parse(self, text: str) -> Batch:
        """One sum as typed, such as `1234+0567`; raises InputError for numbers with more digits than the task has."""
        numbers = text.replace(" ", "").removesuffix("=").split("+")
        in_range("the number of terms", len(numbers), 2, 2)
        for number in numbers:
            for digit in number:
                one_of("a digit", digit, [str(value) for value in self.answers])
            in_range("the number of digits of a term", len(number), 1, self.n_digits)
        return self.batch(torch.tensor([[[int(digit) for digit in each.zfill(self.n_digits)] for each in numbers]]))

    def terms(self, inputs: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch term place"]:
        """The digits of both numbers."""
        n = self.n_digits
        return torch.stack((inputs[:, :n], inputs[:, n + 1 : 2 * n + 1]), 1)

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """Facts about the next digit of the sum, by position; -1 where none follows.

        `a` and `b`, the digits that are added; `units`, the last digit of their sum; `carry`, what comes from below;
        `is_chain`, the place below sums to nine, so that the carry is decided further below. By sequence, for every
        place: `units_0`, `carry_0`, `digit_0` (the answer), and so on.
        """
        terms = self.terms(batch.inputs)
        base, carry = place_sums(terms)
        due = list(self.due)
        known = {"a": terms[:, 0], "b": terms[:, 1], "units": base % BASE, "carry": carry}
        by_place = {"units": base % BASE, "carry": carry, "digit": (base + carry) % BASE}
        latents = {name: batch.inputs.new_full(batch.inputs.shape, -1) for name in known}
        for name, values in known.items():
            latents[name][:, due] = values
        chain = torch.zeros_like(batch.scored)
        chain[:, due[:-1]] = base[:, 1:] == BASE - 1
        places = {f"{name}_{i}": values[:, i] for name, values in by_place.items() for i in range(self.n_digits)}
        return {**latents, "is_chain": chain, **places}

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """`plain`: nothing is carried; `carry`: the place below carries by itself; `chain`: it sums to nine."""
        latents, scored = batch.latents, batch.scored
        chain, carry = latents["is_chain"] & scored, (latents["carry"] == 1) & scored
        return {"plain": scored & ~carry & ~chain, "carry": carry & ~chain, "chain": chain}

    # ---- exact predictors

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab"]:
        """Probabilities in float64; NaN at positions that are not scored.

        `answer`: the right digit. `without_carry`: adds the two digits and never carries. `without_chain`: carries what
        the place below makes by itself.
        """
        one_of("reference", name, self.references)
        terms = self.terms(batch.inputs)
        base, carry = place_sums(terms)
        own = torch.nn.functional.pad((base >= BASE).long()[:, 1:], (0, 1))
        carried = {"answer": carry, "without_carry": torch.zeros_like(carry), "without_chain": own}[name]
        digits = batch.inputs.new_zeros(batch.inputs.shape)
        digits[:, list(self.due)] = (base + carried) % BASE
        result = torch.nn.functional.one_hot(digits, self.d_vocab).double()
        return result.masked_fill(~batch.scored[..., None], math.nan)

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs, read after the position `asker` of the result, where the digit of a random place is due.

        - `flip_carry`: the two digits below the place are redrawn, so that their sum carries where nothing was carried
          into it, and is at most eight where something was. The answer there changes.
        - `change_digit`: one of its two digits is redrawn. The answer there changes, the carry into it stays.
        - `exchange_numbers`: the two numbers change places. All answers stay.
        """
        one_of("kind", kind, self.corruptions)
        n, terms = len(batch), self.terms(batch.inputs).clone()
        device, rows = terms.device, torch.arange(n, device=terms.device)
        draws = torch.rand(n, 4, generator=generator, device=generator.device, dtype=torch.float32).to(device)
        places = self.n_digits - (kind == "flip_carry")
        place = (draws[:, 0] * places).long()
        if kind == "exchange_numbers":
            terms = terms.flip(1)
        elif kind == "change_digit":
            term = (draws[:, 1] * 2).long()
            top = torch.where(place == 0, BASE // 2, BASE)
            other = 1 + (draws[:, 2] * (top - 1)).long()
            terms[rows, term, place] = (terms[rows, term, place] + other) % top
        else:
            carried = place_sums(terms)[1][rows, place] == 1
            first = (draws[:, 1] * (BASE - 1)).long() + torch.where(carried, 0, 1)  # 0 to 8, or 1 to 9
            second = torch.where(
                carried, (draws[:, 2] * (BASE - 1 - first)).long(), BASE - first + (draws[:, 2] * first).long()
            )
            terms[rows, 0, place + 1], terms[rows, 1, place + 1] = first, second
        asker = place + self.due[0]
        return replace(self.batch(terms), known={"asker": asker}, weights=batch.weights, scored=batch.scored)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """`answer_changed`: the share of the pairs with another answer at the position `asker`."""
        rows = torch.arange(len(clean), device=clean.inputs.device)
        differ = (clean.targets != corrupted.targets)[rows, corrupted.known["asker"]]
        return {"answer_changed": float(differ.double().mean())}


def place_sums(
    terms: Int[Tensor, "batch term place"],
) -> tuple[Int[Tensor, "batch place"], Int[Tensor, "batch place"]]:
    """For every place the sum of its digits, and what is carried into it."""
    base = terms.sum(1)
    carry = torch.zeros_like(base)
    for place in range(base.shape[1] - 2, -1, -1):
        carry[:, place] = base[:, place + 1] + carry[:, place + 1] >= BASE
    return base, carry


def position_names(task: DigitSum) -> list[str]:
    """A0, A1, …, +, B0, …, =, C0, …."""
    places = range(task.n_digits)
    return [*(f"A{i}" for i in places), "+", *(f"B{i}" for i in places), "=", *(f"C{i}" for i in places)]


TASKS.add(DigitSum.name, DigitSum)
POSITION_NAMES.add(DigitSum.name, position_names)
