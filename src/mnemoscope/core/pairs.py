"""Pairs of prompts that differ in a known respect: what activation patching compares."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool
from torch import Tensor

from mnemoscope.core.batch import Batch, Targets
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.protocols import Task
from mnemoscope.core.seeding import generator


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptPairs:
    """Clean and corrupted prompts, row by row, of equal length and read at the same positions.

    Attributes:
        clean: The prompts as they are; their targets are the answers.
        corrupted: Row i differs from row i of `clean` in one respect; its targets are the foils.
        name: How the pairs differ; for results.

    >>> moved = ms.PromptPairs.from_task(task, batch, kind="move_repeat", skill="recall")
    >>> len(moved) < len(batch), (moved.answer != moved.foil).any().item()
    (True, True)
    """

    clean: Batch
    corrupted: Batch
    name: str

    def __post_init__(self) -> None:
        shapes = [tuple(batch.inputs.shape) for batch in (self.clean, self.corrupted)]
        if shapes[0] != shapes[1]:
            raise InputError(
                f"pairs must be equal in number and length, since positions are exchanged; clean has {shapes[0][0]} "
                f"prompts of {shapes[0][1]} tokens, corrupted {shapes[1][0]} of {shapes[1][1]}; pad or select"
            )
        if not len(self.clean):
            raise InputError("pairs must hold at least one prompt; got none")
        if not torch.equal(self.clean.scored, self.corrupted.scored):
            raise InputError("both sides of pairs must be scored at the same positions; set them with read_at(mask)")
        unread = ~self.clean.scored.any(1)
        if unread.any():
            raise InputError(
                f"every prompt must be scored at one position at least; {int(unread.sum())} of {len(unread)} are at "
                "none; leave them out with select(rows), or choose positions with read_at(mask)"
            )

    @staticmethod
    def from_task(task: Task, clean: Batch, *, kind: str, skill: str | None = None, seed: int = 0) -> "PromptPairs":
        """The minimal pairs that a task makes.

        The `kind` is one of `task.corruptions`, and becomes the name. With a `skill` of `task.skills` only sequences
        that test it are taken, and read where it alone gives the answer; without, all are read where they are scored.
        Choices are drawn from the seed's stream `pairs`. Raises InputError where the task has no such kind or skill, or
        no sequence tests it.
        """
        if skill is not None:
            masks = task.skills(clean)
            one_of("skill", skill, masks)
            rows = masks[skill].any(1)
            if not rows.any():
                raise InputError(f"skill {skill} is tested in none of {len(clean)} sequences; take more of them")
            pairs = PromptPairs.from_task(task, clean.select(rows), kind=kind, seed=seed)
            return pairs.read_at(masks[skill][rows])
        stream = generator(seed, "pairs", kind, device=clean.inputs.device)
        return PromptPairs(clean=clean, corrupted=task.corrupt(clean, kind=kind, generator=stream), name=kind)

    def __len__(self) -> int:
        return len(self.clean)

    @property
    def answer(self) -> Targets:
        """The right next token, or vector, on the clean prompt."""
        return self.clean.targets

    @property
    def foil(self) -> Targets:
        """The right next token, or vector, on the corrupted prompt."""
        return self.corrupted.targets

    @property
    def scored(self) -> Bool[Tensor, "batch pos"]:
        """True at the positions that metrics read."""
        return self.clean.scored

    def _map(self, change: Callable[[Batch], Batch]) -> "PromptPairs":
        return replace(self, clean=change(self.clean), corrupted=change(self.corrupted))

    def select(self, rows: Tensor | slice) -> "PromptPairs":
        """The pairs that a boolean mask, an index tensor or a slice picks, in its order."""
        return self._map(lambda batch: batch.select(rows))

    def read_at(self, scored: Bool[Tensor, "batch pos"]) -> "PromptPairs":
        """The same pairs, read at other positions; InputError where a prompt is read nowhere."""
        return self._map(lambda batch: replace(batch, scored=scored))

    def read_last(self) -> "PromptPairs":
        """The same pairs, read at the last scored position of each prompt only."""
        later = self.scored.flip(1).cumsum(1).flip(1)
        return self.read_at(self.scored & (later == 1))

    def reworded(self, task: Task, wording: str, *, seed: int = 0) -> "PromptPairs":
        """The same pairs in one of the task's `wordings`, with the same change on both sides; the answers stay.

        Raises InputError where the task has no such wording, or an answer changes.

        >>> pairs.reworded(task, "permute_pairs").name
        'move_repeat, permute_pairs'
        """
        wordings = getattr(task, "wordings", ())
        if not wordings:
            raise InputError(f"the task {task.name} has no other wording of its prompts; leave wordings out")
        one_of("wording", wording, wordings)

        def change(batch: Batch) -> Batch:
            stream = generator(seed, "wordings", wording, device=batch.inputs.device)
            changed = replace(task.corrupt(batch, kind=wording, generator=stream), scored=batch.scored)
            if not torch.equal(changed.targets[batch.scored], batch.targets[batch.scored]):
                raise InputError(f"wording {wording} of task {task.name} changes answers where the pairs are read")
            return changed

        return replace(self._map(change), name=f"{self.name}, {wording}")

    def to(self, device: torch.device | str) -> "PromptPairs":
        """The same pairs on another device."""
        return self._map(lambda batch: batch.to(device))
