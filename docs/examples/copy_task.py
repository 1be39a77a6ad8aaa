"""Copying: a word of random letters, a separator, and the word again.

The second half is known from the first, so an exact predictor has loss 0. Words are split into training and test
words. Token 0 is the separator, the letters are 1..n_letters.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import PRESETS, SYSTEMS, TASKS, BaseTask, Batch, ModelSpec, Preset, Recipe, System, TrainingSet
from mnemoscope import generator as seeded
from mnemoscope.core import in_range, one_of


@dataclass(frozen=True, kw_only=True)
class Copy(BaseTask):
    """Read a word of random letters and write it again."""

    name: ClassVar[str] = "copy"
    references: ClassVar[tuple[str, ...]] = ("copy",)
    corruptions: ClassVar[tuple[str, ...]] = ("change_first",)

    n_letters: int = 4
    """Number of letters."""
    length: int = 3
    """Letters of a word."""
    split_seed: int | None = None
    """Seed of the split into training and test words; none: the seed of the run."""

    def __post_init__(self) -> None:
        in_range("task.n_letters", self.n_letters, 2, 9)
        in_range("task.length", self.length, 1, 5)

    @property
    def d_vocab(self) -> int:
        """The letters and the separator."""
        return self.n_letters + 1

    @property
    def answers(self) -> range:
        """The letters."""
        return range(1, self.n_letters + 1)

    @property
    def n_ctx(self) -> int:
        """All tokens but the last."""
        return 2 * self.length

    def words(self, split: str) -> Int[Tensor, "word letter"]:
        """Four fifths of all words for `train`, the rest for `test`."""
        one_of("split", split, ("train", "test"))
        words = torch.cartesian_prod(*[torch.arange(1, self.d_vocab)] * self.length).view(-1, self.length)
        order = torch.randperm(len(words), generator=seeded(self.split_seed or 0, "split"))
        n_train = round(0.8 * len(words))
        return words[order[:n_train] if split == "train" else order[n_train:]]

    def batch(self, words: Int[Tensor, "batch letter"]) -> Batch:
        """The sequences of given words; scored where the word is written again."""
        tokens = torch.cat((words, torch.zeros_like(words[:, :1]), words), 1)
        scored = (torch.arange(self.n_ctx, device=words.device) >= self.length).expand(len(words), self.n_ctx)
        return Batch(inputs=tokens[:, :-1], targets=tokens[:, 1:], scored=scored, known={"word": words})

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` independent sequences over the words of `split`."""
        words = self.words(split).to(generator.device)
        return self.batch(words[torch.randint(len(words), (n,), generator=generator, device=generator.device)])

    def enumerate(self, *, split: str) -> Batch:
        """Every sequence once, all with the same weight."""
        batch = self.batch(self.words(split))
        return replace(batch, weights=torch.full((len(batch),), 1 / len(batch)))

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """`change_first`: the first letter becomes another one; the first answer changes, the others stay."""
        one_of("kind", kind, self.corruptions)
        words = batch.latents["word"].clone()
        shift = torch.randint(1, self.n_letters, (len(words),), generator=generator, device=generator.device)
        words[:, 0] = (words[:, 0] - 1 + shift.to(words.device)) % self.n_letters + 1
        return self.batch(words)

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab"]:
        """`copy`: the letter of the word, with certainty. NaN at positions that are not scored."""
        one_of("reference", name, self.references)
        exact = torch.nn.functional.one_hot(batch.targets, self.d_vocab).double()
        return torch.where(batch.scored[..., None], exact, torch.nan)

    def skills(self, batch: Batch) -> dict[str, Bool[Tensor, "batch pos"]]:
        """`copying`: every answer."""
        return {"copying": batch.scored}


PRESET = Preset(
    summary="d 16, 1 head, words of three letters",
    task=Copy(),
    model=ModelSpec(d_model=16, n_heads=1),
    recipes={"quick": Recipe(name="quick", n_steps=500, batch_size=128, learning_rate=1e-2, decay="cosine")},
)
PLAN = (TrainingSet(recipe="quick", presets=("copy-small",), seeds=(0, 1, 2, 3)),)

TASKS.add(Copy.name, Copy)
PRESETS.add("copy-small", PRESET)
SYSTEMS.add("copying", System(summary="copying a word", quick=PLAN, full=PLAN))
