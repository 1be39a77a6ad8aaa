"""The places in a batch at which a skill, and nothing else, gives the answer; means over them with standard errors."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch, check_is_batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.seeding import generator

Skills = Mapping[str, Bool[Tensor, "batch pos"]]
"""Name of a skill to the positions that test it (`Task.skills`)."""


def check_masks(batch: Batch, skills: Skills) -> None:
    """Refuse what is no mapping from names to masks of the batch's shape; a mask may be empty."""
    check_is_batch(batch)
    if not isinstance(skills, Mapping):
        way_out = "task.skills(batch) gives them; for a model of your own: {'all': batch.scored}"
        raise InputError(f"skills must map names to masks (batch, pos); got a {type(skills).__name__}: {way_out}")
    for name, mask in skills.items():
        if mask.shape != batch.scored.shape:
            shapes = f"{tuple(batch.scored.shape)}; got {tuple(mask.shape)}"
            raise InputError(f"skill {name} must have the shape (batch, pos) of the batch, {shapes}")


def check_skills(batch: Batch, skills: Skills) -> None:
    """Refuse masks that are empty, or of another shape than the batch."""
    check_masks(batch, skills)
    for name, mask in skills.items():
        if not mask.any():
            raise InputError(f"skill {name} is tested at no position of the batch; take more prompts or leave it out")


def random_halves(
    batch: Batch, skills: Skills | None = None, *, seed: int | None = None
) -> list[tuple[Batch, dict[str, Bool[Tensor, "_ pos"]]]]:
    """The sequences in two halves, to choose by one and test on the other, each with its skills.

    Halves are drawn from the stream `halves` of the seed, and keep the order of the batch. Without a seed every other
    sequence is taken: this is fair where sequences come in random order, and not for an enumeration. Raises InputError
    where skills do not fit the batch, or one is tested in one half only.
    """
    skills = {} if skills is None else skills
    check_skills(batch, skills)
    n = len(batch)
    order = torch.arange(n) if seed is None else torch.randperm(n, generator=generator(seed, "halves"))
    result = []
    for rows in (order[::2].sort()[0], order[1::2].sort()[0]):
        rows = rows.to(batch.inputs.device)
        masks = {name: mask.to(rows.device)[rows] for name, mask in skills.items()}
        for name, mask in masks.items():
            if not mask.any():
                raise InputError(f"skill {name} is tested in one half of the sequences only; take more prompts")
        result.append((batch.select(rows), masks))
    return result


def skill_means(values: Float[Tensor, "*rows batch pos"], skills: Skills) -> Float[Tensor, "*rows skill"]:
    """Means over the positions of each skill, NaN left out; NaN where there are none. Every position counts alike."""
    masks = [mask.to(values.device) for mask in skills.values()]
    return torch.stack([values[..., mask].nanmean(-1) for mask in masks], -1)


def prompt_means(
    values: Float[Tensor, "*rows batch pos"], mask: Bool[Tensor, "*rows batch pos"]
) -> Float[Tensor, "*rows batch"]:
    """The mean over the marked positions of every prompt; NaN where a prompt has none."""
    return torch.where(mask, values, 0).sum(-1) / mask.sum(-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class SkillPlaces:
    """The places of a batch at which some skill is tested; a place is one position of one sequence.

    `sequence` is the row of the batch, `target` the answer. Weights of the places of each skill add up to one; they are
    zero at places of other skills.
    """

    sequence: Int[Tensor, " place"]
    pos: Int[Tensor, " place"]
    target: Int[Tensor, " place"]
    weights: Float[Tensor, "place skill"]

    def means(self, values: Float[Tensor, "set place"]) -> Float[Tensor, "set skill"]:
        """Weighted means; they stay between the extremes, whatever rounding does."""
        return (values @ self.weights).clamp(values.min(), values.max())

    def errors(self, values: Float[Tensor, "set place"]) -> Float[Tensor, "set skill"]:
        """Standard errors of the means; places of one sequence are not independent and are summed first."""
        centred = values[..., None] - (values @ self.weights)[:, None]
        sums = values.new_zeros(len(values), int(self.sequence.max()) + 1, self.weights.shape[1])
        return sums.index_add_(1, self.sequence, centred * self.weights).pow(2).sum(1).sqrt()

    def constant_accuracy(self) -> Float[Tensor, " skill"]:
        """The accuracy of the best constant answer to each skill."""
        target = self.target.unique(return_inverse=True)[1]
        member = torch.nn.functional.one_hot(target).to(self.weights)
        return (member.T @ self.weights).amax(0)


def skill_places(batch: Batch, skills: Skills) -> SkillPlaces:
    """The places of every skill, with the weights that the batch gives its sequences.

    A skill whose sequences weigh nothing counts them alike. Raises InputError as `check_skills` does, or where no skill
    is given.
    """
    if not skills:
        raise InputError("skills must name at least one; got none")
    check_skills(batch, skills)
    masks = torch.stack([mask.to(batch.inputs.device) for mask in skills.values()], -1)
    sequence, pos = masks.any(-1).nonzero(as_tuple=True)
    shares = torch.ones(len(batch)) if batch.weights is None else batch.weights
    member = masks[sequence, pos].double()
    weights = member * shares.to(member)[sequence, None]
    weights = torch.where(weights.sum(0) > 0, weights, member)
    target = batch.targets[sequence, pos]
    return SkillPlaces(sequence=sequence, pos=pos, target=target, weights=weights / weights.sum(0))
