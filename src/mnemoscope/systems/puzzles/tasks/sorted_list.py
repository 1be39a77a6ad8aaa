"""A list of distinct values, and the same list in ascending order.

A sequence shows ten distinct values from 0 to 50 in a random order, SEP, and the same ten sorted. Scored are the
positions from SEP on, where the next of the sorted values is due: the smallest that is larger than the one there, after
SEP the smallest of all. The last position ends the sequence and is not scored.

System S10, "sorted list". The answer needs the set of values and the present one only, so that one head can give it.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import TASKS, BaseTask, Batch, InputError
from mnemoscope.core import POSITION_NAMES, in_range, one_of

SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class SortedList(BaseTask):
    """Repeat a list of distinct values in ascending order."""

    name: ClassVar[str] = "sorted-list"
    references: ClassVar[tuple[str, ...]] = ("uniform", "shown", "larger", "answer")
    corruptions: ClassVar[tuple[str, ...]] = ("replace_next", "replace_later", "reorder")
    wordings: ClassVar[tuple[str, ...]] = ("reorder",)

    n_values: int = 51
    """Values from 0, of which a list shows some."""
    length: int = 10
    """Values of a list; at least 3."""

    def __post_init__(self) -> None:
        in_range("task.length", self.length, 3, self.n_values - 1)

    @property
    def d_vocab(self) -> int:
        """The values and SEP."""
        return self.n_values + 1

    @property
    def answers(self) -> range:
        """The values."""
        return range(self.n_values)

    @property
    def n_ctx(self) -> int:
        """The list, SEP, and the list again."""
        return 2 * self.length + 1

    # ---- generation

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` lists; both splits are the same distribution."""
        one_of("split", split, SPLITS)
        order = torch.rand(n, self.n_values, generator=generator, device=generator.device, dtype=torch.float32).argsort(
            -1
        )
        return self.batch(order[:, : self.length])

    def batch(self, shown: Int[Tensor, "batch value"]) -> Batch:
        """The sequences that show these values in this order."""
        separator = shown.new_full((len(shown), 1), self.n_values)
        inputs = torch.cat((shown, separator, shown.sort(-1).values), 1)
        place = torch.arange(self.n_ctx, device=shown.device).expand_as(inputs)
        return Batch(
            inputs=inputs,
            targets=inputs.roll(-1, 1),
            scored=(place >= self.length) & (place < self.n_ctx - 1),
            derive=self.latents,
            symbol=self.symbol,
        )

    def symbol(self, token: int) -> str:
        """The value itself, or SEP."""
        return "SEP" if token == self.n_values else str(token)

    def parse(self, text: str) -> Batch:
        """One list as typed, in any order; raises InputError where a value is unknown or comes twice."""
        words = text.replace(",", " ").split()
        for word in words:
            one_of("a value", word, [str(value) for value in self.answers])
        in_range("the number of values", len(words), self.length, self.length)
        shown = torch.tensor([[int(word) for word in words]])
        if len(shown.unique()) < self.length:
            raise InputError(f"the values of a list must differ; got {text!r}")
        return self.batch(shown)

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """Facts about each scored position, -1 elsewhere.

        `next_value` is due there, and `next_at` is its position in the list that is shown. `last_value` is the one
        before it, with -1 after SEP. `gap` is how much larger the next one is, counted from -1 after SEP.
        """
        shown, scored = batch.inputs[:, : self.length], batch.scored
        due = batch.targets.masked_fill(~scored, -1)
        last = torch.where(batch.inputs == self.n_values, -1, batch.inputs)
        return {
            "next_value": due,
            "next_at": (shown[:, None] == due[..., None]).int().argmax(-1).masked_fill(~scored, -1),
            "last_value": last.masked_fill(~scored, -1),
            "gap": (due - last).masked_fill(~scored, -1),
        }

    # ---- exact predictors

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab"]:
        """Probabilities in float64; NaN at positions that are not scored.

        `uniform`: all values alike. `shown`: those of the list alike. `larger`: those of the list alike that are
        larger than the last one. `answer`: the next one.
        """
        one_of("reference", name, self.references)
        values = torch.arange(self.d_vocab, device=batch.inputs.device)
        listed = (batch.inputs[:, : self.length, None] == values).any(1)[:, None]
        last = torch.where(batch.inputs == self.n_values, -1, batch.inputs)[..., None]
        possible = {
            "uniform": (values < self.n_values).expand(*batch.inputs.shape, -1),
            "shown": listed.expand(*batch.inputs.shape, -1),
            "larger": listed & (values > last),
            "answer": listed & (values > last) & ((listed & (values > last)).cumsum(-1) == 1),
        }[name].double()
        return (possible / possible.sum(-1, keepdim=True)).masked_fill(~batch.scored[..., None], math.nan)

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs; `asker` of the result is the scored position at which to read them.

        - `replace_next`: the next value of a random position is replaced in the list, by one that it does not
          show and that is larger than the last one. The answer there changes; what stands before it does not.
        - `replace_later`: a value behind the next one is replaced, by one that is larger than the next. The answer
          there stays.
        - `reorder`: the list is shown in another order, and the asker is random. All answers stay.
        """
        one_of("kind", kind, self.corruptions)
        n, device = len(batch), batch.inputs.device
        draws = torch.rand(
            n, self.n_values + 3 * self.length, generator=generator, device=generator.device, dtype=torch.float32
        ).to(device)
        shown, ranked = batch.inputs[:, : self.length], batch.inputs[:, self.length + 1 :]
        if kind == "reorder":
            order = draws[:, : self.length].argsort(-1)
            asker = (draws[:, -1] * self.length).long() + self.length
            return self._paired(batch, shown.gather(1, order), asker)
        later = kind == "replace_later"
        values = torch.arange(self.n_values, device=device)
        unlisted = (shown[..., None] != values).all(1)
        before = torch.cat((torch.full_like(ranked[:, :1], -1), ranked), 1)  # the last value at every scored position
        bound = before[:, 1:] if later else before[:, :-1]
        free = unlisted[:, None] & (values > bound[..., None])
        possible = free.any(-1)
        if later:
            possible[:, -1] = False  # nothing comes behind the last value
        if not possible.any(1).all():
            raise InputError(f"{kind} needs lists that leave out a value above the answer somewhere; leave others out")
        scores = draws[:, self.n_values : self.n_values + self.length].masked_fill(~possible, -1)
        rank = scores.argmax(-1)
        rows = torch.arange(n, device=device)
        new = draws[:, : self.n_values].masked_fill(~free[rows, rank], -1).argmax(-1)
        behind = draws[:, -self.length :].masked_fill(torch.arange(self.length, device=device) <= rank[:, None], -1)
        old = ranked[rows, behind.argmax(-1) if later else rank]
        changed = torch.where(shown == old[:, None], new[:, None], shown)
        return self._paired(batch, changed, rank + self.length)

    def _paired(self, batch: Batch, shown: Int[Tensor, "batch value"], asker: Int[Tensor, " batch"]) -> Batch:
        return replace(self.batch(shown), known={"asker": asker}, weights=batch.weights, scored=batch.scored)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """`answer_changed`: the share of the pairs with another answer at the asker."""
        asker = corrupted.known["asker"][:, None]
        differ = clean.targets.gather(1, asker) != corrupted.targets.gather(1, asker)
        return {"answer_changed": float(differ.double().mean())}


def position_names(task: SortedList) -> list[str]:
    """v1, …, v10, SEP, s1, …, s10."""
    return [*(f"v{i + 1}" for i in range(task.length)), "SEP", *(f"s{i + 1}" for i in range(task.length))]


TASKS.add(SortedList.name, SortedList)
POSITION_NAMES.add(SortedList.name, position_names)
