"""Arrays of tensors, summaries over replicates, entropy and mutual information, and products of two factors.

Information is in bits. Rows have weights that add up to one: the probabilities of an enumerated distribution, for which
all figures are exact, or equal shares of a sample, for which they are plug-in estimates. The plug-in mutual information
of a sample is biased upwards, by about (a - 1)(b - 1) / (2 n ln 2) bits for a and b values and n independent rows
(Miller, 1955): compare it with what shuffled rows give.

A circuit of a head is a product left @ right whose inner dimension is the width of the head. Its singular values, norm
and eigenvalues follow from small matrices: with QR decompositions left = Q_l R_l and right^T = Q_r R_r they are those
of R_l R_r^T, and the nonzero eigenvalues of left @ right are those of right @ left.
"""

import math

import numpy as np
import torch
import xarray as xr
from jaxtyping import Complex, Float, Int, Shaped
from scipy.special import stdtrit
from torch import Tensor


def to_numpy(values: Shaped[Tensor, "..."]) -> Shaped[np.ndarray, "..."]:
    """The numbers of a tensor, wherever it is, for a labelled result; NumPy has no bfloat16, which becomes float32."""
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()


def mean_and_range(values: xr.DataArray, dim: str = "seed") -> xr.DataArray:
    """Mean and range over seeds along a new dimension `summary`: mean, min, max. NaN stays out of all three."""
    parts = [values.mean(dim), values.min(dim), values.max(dim)]
    return xr.concat(parts, xr.DataArray(["mean", "min", "max"], dims="summary", name="summary"))


def mean_interval(values: xr.DataArray, dim: str = "draw", *, confidence: float = 0.95) -> xr.DataArray:
    """Mean over draws with the ends of Student's interval, along a new dimension `summary`: mean, low, high.

    NaN stays out. The ends are NaN where there are fewer than two draws.
    """
    n, mean = values.count(dim), values.mean(dim)
    error = values.std(dim, ddof=1) / n**0.5
    reach = error * stdtrit((n - 1).clip(min=1), (1 + confidence) / 2)
    ends: list[xr.DataArray] = [mean, mean - reach, mean + reach]
    return xr.concat(ends, xr.DataArray(["mean", "low", "high"], dims="summary", name="summary"))


def difference_interval(
    one: xr.DataArray, other: xr.DataArray, dim: str = "seed", *, confidence: float = 0.95
) -> xr.DataArray:
    """Mean difference, `other` minus `one`, with the ends of Student's interval along `summary`: mean, low, high.

    Replicates that both have are paired if there are at least two of them; others are left out then. Otherwise the two
    are independent samples of unlike variance (Welch, Biometrika 1947). NaN stays out. Ends are NaN where one of the
    two has a single replicate. The attrs have `paired`, the number of pairs, and `interval`, 1 if there are ends and
    else 0.
    """
    shared = [each for each in one[dim].values.tolist() if each in other[dim].values.tolist()]
    if len(shared) > 1:
        change = other.sel({dim: shared}) - one.sel({dim: shared})
        return mean_interval(change, dim, confidence=confidence).assign_attrs(paired=len(shared), interval=1)
    mean = other.mean(dim) - one.mean(dim)
    errors = [each.var(dim, ddof=1) / each.count(dim) for each in (one, other)]
    total = errors[0] + errors[1]
    parts = [error**2 / (each.count(dim) - 1).clip(min=1) for error, each in zip(errors, (one, other), strict=True)]
    degrees = (total**2 / (parts[0] + parts[1])).where(total > 0, 1)
    reach = total**0.5 * stdtrit(degrees, (1 + confidence) / 2)
    ends: list[xr.DataArray] = [mean, mean - reach, mean + reach]
    found = xr.concat(ends, xr.DataArray(["mean", "low", "high"], dims="summary", name="summary"))
    return found.assign_attrs(paired=0, interval=int(min(one.sizes[dim], other.sizes[dim]) > 1))


_VALUES_AT_ONCE = 512
_NUMBERS_AT_ONCE = 2**24
_RESOLUTION = 1e-6


def entropy(probabilities: Float[Tensor, "*rows value"]) -> Float[Tensor, "*rows"]:
    """-sum p log2 p over the last axis; 0 log 0 is 0."""
    return -torch.special.xlogy(probabilities, probabilities).sum(-1) / math.log(2)


def class_entropy(classes: Int[Tensor, "row variable"], weights: Float[Tensor, " row"]) -> Float[Tensor, " variable"]:
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
    return (class_entropy(states, weights)[:, None] + class_entropy(classes, weights) - joint).clamp(min=0)


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


def number_classes(values: Int[Tensor, " row"]) -> Int[Tensor, " row"]:
    """The same classes, numbered from 0 in the order of their values."""
    return torch.unique(values, return_inverse=True)[1]


def quantise(values: Float[Tensor, "row unit"]) -> Int[Tensor, "row unit"]:
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


def factored_svd(
    left: Float[Tensor, "*batch row rank"], right: Float[Tensor, "*batch rank column"]
) -> tuple[Float[Tensor, "*batch row k"], Float[Tensor, "*batch k"], Float[Tensor, "*batch column k"]]:
    """Singular value decomposition of left @ right = U diag(S) V^T, S descending; k is the smallest of the three sizes.

    Each column of U and V is fixed up to a sign that the two share.
    """
    q_left, r_left = torch.linalg.qr(left)
    q_right, r_right = torch.linalg.qr(right.mT)
    u, s, vh = torch.linalg.svd(r_left @ r_right.mT, full_matrices=False)
    return q_left @ u, s, q_right @ vh.mT


def factored_singular_values(
    left: Float[Tensor, "*batch row rank"], right: Float[Tensor, "*batch rank column"]
) -> Float[Tensor, "*batch k"]:
    """Singular values of left @ right, descending; as many as the smallest of its three sizes."""
    r_left, r_right = (torch.linalg.qr(factor, mode="r").R for factor in (left, right.mT))
    return torch.linalg.svdvals(r_left @ r_right.mT)


def factored_eigenvalues(
    left: Float[Tensor, "*batch row rank"], right: Float[Tensor, "*batch rank row"]
) -> Complex[Tensor, "*batch k"]:
    """Eigenvalues of the square matrix left @ right, by descending modulus; the others are exactly zero."""
    small = right @ left if left.shape[-1] <= left.shape[-2] else left @ right
    values = torch.linalg.eigvals(small)
    return values.gather(-1, values.abs().argsort(-1, descending=True))


def sign_score(eigenvalues: Complex[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """Sum of the eigenvalues over the sum of their moduli: 1 if all are positive, -1 if all are negative.

    NaN where all are zero.
    """
    return eigenvalues.real.sum(-1) / eigenvalues.abs().sum(-1)
