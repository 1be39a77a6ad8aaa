"""Where in a batch a skill, and nothing else, gives the answer."""

from collections.abc import Mapping

from jaxtyping import Bool
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError

Skills = Mapping[str, Bool[Tensor, "batch pos"]]
"""Name of a skill to the positions that test it (`Task.skills`)."""


def check_skills(batch: Batch, skills: Skills) -> None:
    """Refuse skills that do not fit a batch.

    Raises:
        InputError: A mask has another shape than the batch, or is empty.
    """
    for name, mask in skills.items():
        if mask.shape != batch.scored.shape:
            shapes = f"{tuple(batch.scored.shape)}; got {tuple(mask.shape)}"
            raise InputError(f"skill {name} must have the shape (batch, pos) of the batch, {shapes}")
        if not mask.any():
            raise InputError(f"skill {name} is tested at no position of the batch; take more prompts or leave it out")
