"""The first unique letter: at every position the first letter so far that stood there once.

A sequence is START, written `?`, and letters drawn alike; the answer at every position is the first of the letters so
far that occurred exactly once, or `?` where there is none. Tokens are the letters, from 0, and then `?`.

System S10 (the algorithmic problem "first unique character" of a public course).
"""

import math
from dataclasses import dataclass, replace
from string import ascii_lowercase
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import TASKS, BaseTask, Batch
from mnemoscope.core import POSITION_NAMES, in_range, one_of

SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class FirstUnique(BaseTask):
    """Name the first letter so far that stood there once."""

    name: ClassVar[str] = "first-unique"
    references: ClassVar[tuple[str, ...]] = ("answer", "first_letter", "any_unique")
    corruptions: ClassVar[tuple[str, ...]] = ("repeat_answer", "exchange_uniques", "rename_others")

    n_letters: int = 10
    """Letters in the alphabet."""
    n_shown: int = 19
    """Letters in a sequence, after START; fewer than two for each letter, so that some letter can be missing."""

    def __post_init__(self) -> None:
        in_range("task.n_letters", self.n_letters, 3, len(ascii_lowercase))
        in_range("task.n_shown", self.n_shown, 2, 2 * self.n_letters - 1)

    @property
    def none(self) -> int:
        """The token `?`: START, and the answer where no letter stood once."""
        return self.n_letters

    @property
    def d_vocab(self) -> int:
        """The letters and `?`."""
        return self.n_letters + 1

    @property
    def n_ctx(self) -> int:
        """START and the letters."""
        return self.n_shown + 1

    @property
    def letters(self) -> tuple[str, ...]:
        """Names of the letters, by token."""
        return tuple(ascii_lowercase[: self.n_letters])

    def symbol(self, token: int) -> str:
        """The letter, or `?`."""
        return (*self.letters, "?")[token]

    # ---- generation

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences of letters drawn alike; both splits are the same distribution."""
        one_of("split", split, SPLITS)
        size = (n, self.n_shown)
        return self.batch(torch.randint(self.n_letters, size, generator=generator, device=generator.device))

    def batch(self, shown: Int[Tensor, "batch shown"]) -> Batch:
        """The sequences that show these letters after START."""
        inputs = torch.nn.functional.pad(shown, (1, 0), value=self.none)
        return Batch(
            inputs=inputs,
            targets=self.first_once(inputs),
            scored=torch.ones_like(inputs, dtype=torch.bool),
            derive=self.latents,
            symbol=self.symbol,
        )

    def parse(self, text: str) -> Batch:
        """One sequence of letters as typed, at most as long as those of the task."""
        letters = "".join(text.replace(",", " ").split())
        for letter in letters:
            one_of("a letter", letter, self.letters)
        in_range("the number of letters", len(letters), 1, self.n_shown)
        return self.batch(torch.tensor([[self.letters.index(letter) for letter in letters]]))

    def once(self, inputs: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch pos letter"]:
        """True for the letters that stood once so far."""
        return self._stands(inputs).cumsum(1, dtype=torch.int16) == 1

    def first_place(self, inputs: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch letter"]:
        """The position at which each letter first stands; the length of the sequence where it does not."""
        places = torch.arange(inputs.shape[1], device=inputs.device, dtype=torch.int16)[:, None]
        return torch.where(self._stands(inputs), places, inputs.shape[1]).amin(1).long()

    def _stands(self, inputs: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch pos letter"]:
        """True for the letter of each position."""
        return inputs[..., None] == torch.arange(self.n_letters, device=inputs.device)

    def first_once(self, inputs: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
        """The answer at every position."""
        first = self.first_place(inputs).to(torch.int16)[:, None]
        place = torch.where(self.once(inputs), first, inputs.shape[1]).amin(-1)  # of distinct letters distinct
        return torch.nn.functional.pad(inputs, (0, 1), value=self.none).gather(1, place.long())

    def latents(self, batch: Batch) -> dict[str, Tensor]:
        """Facts that follow from the letters.

        By position: `is_repeat`, the letter there stood before; `answer_place`, the position of the answer, -1 where it
        is `?`; and for every letter `once_a` and so on, it stood once so far. By sequence: `first_a` and so on, where
        the letter first stands, -1 where it does not.
        """
        inputs, place = batch.inputs, self.first_place(batch.inputs)
        absent, pos = place == inputs.shape[1], torch.arange(inputs.shape[1], device=inputs.device)
        padded = torch.nn.functional.pad(place, (0, 1), value=-1)
        once = self.once(inputs)
        return {
            "is_repeat": (padded.gather(1, inputs) < pos) & (inputs != self.none),
            "answer_place": padded.gather(1, self.first_once(inputs)),
            **{f"once_{letter}": once[..., i] for i, letter in enumerate(self.letters)},
            **{f"first_{letter}": place[:, i].masked_fill(absent[:, i], -1) for i, letter in enumerate(self.letters)},
        }

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """`first`: the answer is the first letter of all; `later`: another one; `none`: there is none, after START."""
        answers = batch.targets
        is_none, is_first = answers == self.none, answers == batch.inputs[:, 1:2]
        started = (torch.arange(answers.shape[1], device=answers.device) > 0).expand_as(answers)
        return {"first": is_first, "later": ~is_none & ~is_first, "none": is_none & started}

    # ---- exact predictors

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab"]:
        """Probabilities in float64; NaN at positions that are not scored.

        `answer`: the right answer. `first_letter`: the first letter of the sequence, repeated or not. `any_unique`:
        uniform over the letters that stood once, in whatever order, and `?` where there is none.
        """
        one_of("reference", name, self.references)
        if name == "any_unique":
            once = self.once(batch.inputs)
            result = torch.cat((once, ~once.any(-1, keepdim=True)), -1).double()
            result /= result.sum(-1, keepdim=True)
        else:
            first = batch.inputs[:, 1:2].expand_as(batch.inputs).clone()
            first[:, 0] = self.none
            chosen = self.first_once(batch.inputs) if name == "answer" else first
            result = torch.nn.functional.one_hot(chosen, self.d_vocab).double()
        return result.masked_fill(~batch.scored[..., None], math.nan)

    # ---- counterfactuals

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs; "the answer" is that at the last position.

        - `repeat_answer`: a random other place takes the letter of the answer, which now stands twice; where the answer
          is `?`, it takes a letter that is missing. The answer changes.
        - `exchange_uniques`: the first two letters that stand once change places. The same letters stand once, and the
          answer changes. Where a sequence has no two, as `repeat_answer`.
        - `rename_others`: two letters other than the answer, one of which is shown, change names. The answer stays.
        """
        one_of("kind", kind, self.corruptions)
        shown, device = batch.inputs[:, 1:].clone(), batch.inputs.device
        n, length = shown.shape
        once, place = self.once(batch.inputs)[:, -1], self.first_place(batch.inputs) - 1
        ordered = torch.where(once, place, length).sort(1)[0]  # where those that stand once stand
        here = ordered[:, :1]
        draws = torch.rand(n, length, generator=generator, device=generator.device, dtype=torch.float32).to(device)
        if kind in ("repeat_answer", "exchange_uniques"):
            missing = (place == length).int().argmax(1, keepdim=True)
            letter = torch.where(here < length, shown.gather(1, here.clamp(max=length - 1)), missing)
            others = torch.arange(length, device=device) != here
            repeated = shown.scatter(1, (draws * others).argmax(1, keepdim=True), letter)
            if kind == "exchange_uniques":
                both = ordered[:, :2].clamp(max=length - 1)
                exchanged = shown.scatter(1, both, shown.gather(1, both.flip(1)))
                repeated = torch.where(once.sum(1, keepdim=True) > 1, exchanged, repeated)
            shown = repeated
        else:
            answer, letters = self.first_once(batch.inputs)[:, -1:], torch.arange(self.n_letters, device=device)
            size = (n, self.n_letters)
            preferred = 1 + torch.rand(size, generator=generator, device=generator.device, dtype=torch.float32).to(
                device
            )
            one = (preferred * ((place < length) & (letters != answer))).argmax(1, keepdim=True)
            other = (preferred * ((letters != one) & (letters != answer))).argmax(1, keepdim=True)
            shown = torch.where(shown == one, other, torch.where(shown == other, one, shown))
        return replace(self.batch(shown), weights=batch.weights, scored=batch.scored)

    def pair_report(self, clean: Batch, corrupted: Batch) -> dict[str, float]:
        """`answer_changed`: the share of the pairs with another answer at the last position."""
        return {"answer_changed": float((clean.targets != corrupted.targets)[:, -1].double().mean())}


def position_names(task: FirstUnique) -> list[str]:
    """START, then l1, l2, …."""
    return ["START", *(f"l{i + 1}" for i in range(task.n_shown))]


TASKS.add(FirstUnique.name, FirstUnique)
POSITION_NAMES.add(FirstUnique.name, position_names)
