"""Which positions of which sequences an analysis looks at, and whether it keeps them apart or takes means by skill."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """Positions, and how values at them are put together.

    Attributes:
        positions: Where to look.
        skills: Names of the skills that means are taken over; none: every position is kept.
        weights: What each position counts in the mean of each skill; adds up to one, NaN for a skill without any.
    """

    positions: Bool[Tensor, "batch pos"]
    skills: tuple[str, ...] | None = None
    weights: Float[Tensor, "skill batch pos"] | None = None

    @property
    def columns(self) -> Int[Tensor, " column"]:
        """The positions that are looked at in at least one sequence, in order."""
        return self.positions.any(0).nonzero().squeeze(1)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes that results have in front."""
        return ("prompt", "pos") if self.weights is None else ("skill",)

    @property
    def coords(self) -> dict[str, Any]:
        """Their coordinates."""
        if self.skills is not None:
            return {"skill": list(self.skills)}
        return {"prompt": range(len(self.positions)), "pos": self.columns.tolist()}

    @property
    def attrs(self) -> dict[str, str]:
        """How the means were taken."""
        return {} if self.skills is None else {"mean": "over the positions of the skill, each counts the same"}

    def gather(
        self, parts: Iterable[tuple[slice, Mapping[str, Shaped[Tensor, "rows column *value"]]]]
    ) -> dict[str, Tensor]:
        """Values at the columns of some of the sequences at a time, as one array each, with `dims` in front.

        Where a column is not looked at in a sequence, the value is NaN.
        """
        kept: dict[str, list[Tensor]] = {}
        for rows, values in parts:
            for name, value in values.items():
                kept.setdefault(name, []).append(self._kept(rows, value))
        if self.weights is None:
            return {name: torch.cat(values) for name, values in kept.items()}
        return {name: torch.stack(values).sum(0) for name, values in kept.items()}

    def _kept(self, rows: slice, value: Tensor) -> Tensor:
        here = self.positions[rows][:, self.columns]
        here = here.view(*here.shape, *[1] * (value.ndim - 2)).to(value.device)
        if self.weights is None:
            return torch.where(here, value, torch.nan).cpu()
        weights = self.weights[:, rows][..., self.columns].to(value)
        return torch.einsum("sbp,bp...->s...", weights, torch.where(here, value, 0.0)).cpu()


def selection(
    batch: Batch,
    *,
    positions: Bool[Tensor, "batch pos"] | None = None,
    skills: Mapping[str, Bool[Tensor, "batch pos"]] | None = None,
) -> Selection:
    """A checked selection.

    Args:
        batch: The sequences.
        positions: Where to look; none: the scored positions, or with `skills` wherever one of them is True.
        skills: Masks to take means over.

    Raises:
        InputError: A shape differs from the batch's, there are no skills in `skills`, or nothing is selected.
    """
    masks = {} if skills is None else dict(skills)
    given = {} if positions is None else {"positions": positions}
    for name, mask in {**given, **{f"skill {name}": mask for name, mask in masks.items()}}.items():
        if mask.shape != batch.scored.shape:
            shape = tuple(batch.scored.shape)
            raise InputError(f"{name} must have the batch's shape (batch, pos) = {shape}; got {tuple(mask.shape)}")
    if skills is not None and not masks:
        raise InputError("skills must name at least one mask (none: no means are taken); got an empty mapping")
    if skills is None:
        result = Selection(positions=batch.scored if positions is None else positions)
    else:
        result = _by_skill(positions, masks)
    if not result.positions.any():
        raise InputError("positions (none: the scored ones) and skills must select at least one position; got none")
    return result


def _by_skill(positions: Tensor | None, masks: Mapping[str, Tensor]) -> Selection:
    stacked = torch.stack(list(masks.values()))
    stacked = stacked if positions is None else stacked & positions
    weights = stacked.double()
    weights = weights / weights.sum((1, 2), keepdim=True)
    return Selection(positions=stacked.any(0), skills=tuple(masks), weights=weights)
