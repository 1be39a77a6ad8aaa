r"""Entropy and mutual information of discrete quantities that are known row by row, in bits.

Rows have weights that add up to one: the probabilities of an enumerated distribution, for which all figures are exact,
or equal shares of a sample, for which they are plug-in estimates. The plug-in mutual information of a sample is biased
upwards, by about (a - 1)(b - 1) / (2 n ln 2) bits for a and b values and n independent rows (Miller, 1955): compare it
with what shuffled rows give.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

_VALUES_AT_ONCE = 512
_NUMBERS_AT_ONCE = 2**24
_RESOLUTION = 1e-6


def entropy(probabilities: Float[Tensor, "*rows value"]) -> Float[Tensor, "*rows"]:
    """-sum p log2 p over the last axis; 0 log 0 is 0."""
    return -torch.special.xlogy(probabilities, probabilities).sum(-1) / math.log(2)


def entropy_of(classes: Int[Tensor, "row variable"], weights: Float[Tensor, " row"]) -> Float[Tensor, " variable"]:
    """Entropy of each variable, whose classes count from 0."""
    shares = [torch.bincount(column, weights) for column in classes.T]
    return torch.stack([entropy(share) for share in shares])


def mutual_information(
    states: Int[Tensor, "row unit"], classes: Int[Tensor, "row variable"], weights: Float[Tensor, " row"]
) -> Float[Tensor, "unit variable"]:
    """Information in bits that the state of each unit has about each variable: H(state) + H(class) - H(state, class).

    States and classes count from 0; the weights of the rows add up to one.
    """
    size = max(1, _NUMBERS_AT_ONCE // (len(states) * (int(states.max()) + 1)))
    joint = torch.cat([_joint_entropy(part, classes, weights) for part in states.split(size, dim=1)])
    return (entropy_of(states, weights)[:, None] + entropy_of(classes, weights) - joint).clamp(min=0)


def _joint_entropy(states: Tensor, classes: Tensor, weights: Tensor) -> Float[Tensor, "unit variable"]:
    device, n_values = states.device, classes.amax(0) + 1
    variable = torch.arange(len(n_values), device=device).repeat_interleave(n_values)
    value = torch.cat([torch.arange(int(n), device=device) for n in n_values])
    state = torch.arange(int(states.max()) + 1, device=device)
    by_state = (states[:, None] == state[:, None]) * weights[:, None, None]
    result = torch.zeros(states.shape[1], len(n_values), dtype=weights.dtype, device=device)
    for columns in torch.arange(len(value), device=device).split(_VALUES_AT_ONCE):
        member = (classes[:, variable[columns]] == value[columns]).to(weights)
        table = torch.einsum("rsu,rc->ucs", by_state, member)
        result.index_add_(1, variable[columns], entropy(table))
    return result


def relabelled(values: Int[Tensor, " row"]) -> Int[Tensor, " row"]:
    """The same classes, numbered from 0 in the order of their values."""
    return torch.unique(values, return_inverse=True)[1]


def quantised(values: Float[Tensor, "row unit"]) -> Int[Tensor, "row unit"]:
    """Values in steps of a millionth of the largest of all, so that rounding errors tell nothing apart."""
    step = values.abs().max().clamp(min=torch.finfo(values.dtype).tiny) * _RESOLUTION
    return (values / step).round().long()


def quantile_states(
    values: Int[Tensor, "row unit"], weights: Float[Tensor, " row"], n_states: int
) -> Int[Tensor, "row unit"]:
    """Each unit's values cut at its own weighted quantiles: how many of the `n_states - 1` cuts lie below.

    A cut is the smallest value up to which the given share of the weight lies. Equal values are never parted, so that
    a unit may have fewer states.
    """
    ordered, order = values.sort(0)
    cumulated = weights[order].cumsum(0)
    states = torch.zeros_like(values)
    for i in range(1, n_states):
        place = (cumulated < i / n_states - 1e-9).sum(0, keepdim=True).clamp(max=len(values) - 1)
        states += values > ordered.gather(0, place)
    return states
