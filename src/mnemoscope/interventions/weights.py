"""Weights changed for the time of a block, and exactly restored."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.intervention import LowRank, Scale, Zero
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import ParamSite

AtWeight = LowRank | Scale | Zero


@contextmanager
def changed_weights(model: HookedModel, interventions: Sequence[AtWeight]) -> Iterator[None]:
    """Run a block with weights changed, in the order given.

    Raises:
        InputError: The model has no such weight.
    """
    with ExitStack() as stack:
        for intervention in interventions:
            assert isinstance(intervention.site, ParamSite)
            parameter = _parameter(model, intervention.site)
            stack.callback(setattr, parameter, "data", parameter.data)
            parameter.data = _changed(intervention, intervention.site.head, parameter.data)
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
def _changed(intervention: AtWeight, head: int | None, weight: Tensor) -> Tensor:
    part = weight if head is None else weight[head]
    match intervention:
        case Zero():
            part = torch.zeros_like(part)
        case Scale(factor=factor):
            part = part * factor
        case LowRank(rank=rank, part=kept):
            part = _truncated(part, rank, kept == "top")
    if head is None:
        return part
    result = weight.clone()
    result[head] = part
    return result


def _truncated(matrix: Tensor, rank: int, top: bool) -> Tensor:
    """The part of the `rank` largest singular values, or what is left; an empty part left out changes nothing."""
    full = min(matrix.shape[-2:])
    if (rank >= full) if top else (rank == 0):
        return matrix
    left, size, right = torch.linalg.svd(matrix, full_matrices=False)
    chosen = slice(None, rank) if top else slice(rank, None)
    return (left[..., chosen] * size[..., None, chosen]) @ right[..., chosen, :]
