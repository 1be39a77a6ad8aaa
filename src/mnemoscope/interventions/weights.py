"""Weights changed within a block, and restored exactly after it."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.intervention import LowRank, Scale, Zero
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import ParamSite

AtWeight = LowRank | Scale | Zero
Factors = tuple[Float[Tensor, "*head row index"], Float[Tensor, "*head index"], Float[Tensor, "*head index column"]]
"""Left singular vectors, singular values, largest first, and right singular vectors, an index a row."""


class Decompositions:
    """Singular value decompositions of weights, each computed once until the weight changes."""

    def __init__(self) -> None:
        self._kept: dict[ParamSite, tuple[Tensor, Factors]] = {}

    @torch.no_grad()
    def of(self, site: ParamSite, matrix: Float[Tensor, "*head row column"]) -> Factors:
        """The factors of the matrix at a site, or of one matrix per head."""
        if site not in self._kept or not torch.equal(self._kept[site][0], matrix):
            left, size, right = torch.linalg.svd(matrix, full_matrices=False)
            self._kept[site] = matrix.detach().clone(), (left, size, right)
        return self._kept[site][1]


def weight_at(model: HookedModel, site: ParamSite) -> Tensor:
    """The weight at a site as the model has it, of one head or of all; InputError if there is none."""
    weight = _parameter(model, site).detach()
    return weight if site.head is None else weight[site.head]


@contextmanager
def changed_weights(
    model: HookedModel, interventions: Sequence[AtWeight], *, decompositions: Decompositions | None = None
) -> Iterator[None]:
    """Change weights within a block, in the order given.

    `decompositions` are reused where several blocks cut one weight at different ranks.
    """
    decompositions = Decompositions() if decompositions is None else decompositions
    with ExitStack() as stack:
        for intervention in interventions:
            assert isinstance(intervention.site, ParamSite)
            parameter = _parameter(model, intervention.site)
            stack.callback(setattr, parameter, "data", parameter.data)
            parameter.data = _changed(intervention, intervention.site, parameter.data, decompositions)
        yield


def _parameter(model: HookedModel, site: ParamSite) -> torch.nn.Parameter:
    named = dict(model.named_parameters())
    if site.parameter not in named:
        raise InputError(
            f"the model has no parameter {site.parameter} to change at {site}; take a HookedTransformer that has it"
        )
    if site.head is not None:
        in_range(f"the head of {site}", site.head, 0, len(named[site.parameter]) - 1)
    return named[site.parameter]


@torch.no_grad()
def _changed(intervention: AtWeight, site: ParamSite, weight: Tensor, decompositions: Decompositions) -> Tensor:
    part = weight if site.head is None else weight[site.head]
    match intervention:
        case Zero():
            part = torch.zeros_like(part)
        case Scale(factor=factor):
            part = part * factor
        case LowRank(rank=rank, part=kept):
            part = _truncated(part, site, rank, kept == "top", decompositions)
    if site.head is None:
        return part
    result = weight.clone()
    result[site.head] = part
    return result


def _truncated(matrix: Tensor, site: ParamSite, rank: int, top: bool, decompositions: Decompositions) -> Tensor:
    """The part of the `rank` largest singular values, or the rest; the matrix itself where that is all of it."""
    full = min(matrix.shape[-2:])
    if (rank >= full) if top else (rank == 0):
        return matrix
    left, size, right = decompositions.of(site, matrix)
    chosen = slice(None, rank) if top else slice(rank, None)
    return (left[..., chosen] * size[..., None, chosen]) @ right[..., chosen, :]
