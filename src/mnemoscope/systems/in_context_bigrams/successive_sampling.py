"""The distribution of K tokens drawn one after another, without replacement, in proportion to given weights.

Such a set S is also the first K arrivals of independent exponential clocks, one per token, whose rates are the weights
(successive sampling; Rosén 1972). At the time t of the K-th arrival the last token of S arrives and all others wait:

    p(S) = integral over t of  (d/dt prod_{a in S} (1 - exp(-w_a t)))  *  prod_{a not in S} exp(-w_a t).

Evidence that multiplies p(S) by a factor for every token, one if it is in S and another if not, stays inside the
product. The sum over all S is the coefficient of z^K of a product of linear polynomials in z, one per token, and is
found without listing the sets. Exact up to the quadrature: the trapezoidal rule in log t, whose error falls
exponentially in the number of nodes. The derivative is taken by a complex step.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

_STEP = 1e-10
"""Imaginary part of the time in the tokens that have arrived; the error of the derivative goes with its square."""
_SPACING = 0.3
_NEGLIGIBLE = 1e-13
_CHUNK = 32


@dataclass(frozen=True, eq=False)
class Draws:
    """K draws without replacement from fewer than all tokens; the weights of the tokens add up to one."""

    weights: Float[Tensor, " token"]
    k: int

    @cached_property
    def times(self) -> Float[Tensor, " node"]:
        """Nodes, equally spaced in log t, between which all but a negligible part of the integrand lies.

        It grows like t^K at the lower end and falls at the upper as the K - 1 fastest clocks allow.
        """
        slowest = self.weights.sort(descending=True).values[self.k - 1 :].sum()
        low = torch.tensor(0.5 * _NEGLIGIBLE ** (1 / self.k), dtype=torch.double).log().item()
        high = ((40 + 2 * self.k) / slowest).log().item()
        return torch.arange(low, high, _SPACING, dtype=torch.double, device=self.weights.device).exp()

    @cached_property
    def arrived(self) -> Complex[Tensor, "token node"]:
        """Probability that a token's clock has rung, at a time with a small imaginary part."""
        exponent = -self.weights[:, None] * self.times
        return torch.complex(-torch.expm1(exponent), _STEP * self.weights[:, None] * torch.exp(exponent))

    @cached_property
    def waiting(self) -> Float[Tensor, "token node"]:
        """Probability that it has not."""
        return torch.exp(-self.weights[:, None] * self.times)

    def integral(self, values: Complex[Tensor, "case node"]) -> Float[Tensor, " case"]:
        """The derivative with respect to the time of those that have arrived, integrated over time."""
        return values.imag / _STEP @ self.times * _SPACING

    @cached_property
    def inclusion(self) -> Float[Tensor, " token"]:
        """Probability of every token that it is drawn."""
        n = len(self.weights)
        ones, tokens = self.weights.new_ones(n, 1, n), torch.arange(n, device=self.weights.device)
        return inclusion(self, tokens[:, None], (tokens != tokens[:, None]).long(), ones, ones)[:, 0]


def inclusion(
    draws: Draws,
    token: Int[Tensor, "batch pos"],
    met_at: Int[Tensor, "batch token"],
    inside: Float[Tensor, "batch pos token"],
    outside: Float[Tensor, "batch pos token"],
) -> Float[Tensor, "batch pos"]:
    """Posterior probability that a token was drawn, along sequences that meet one token after another.

    There may be evidence on a token from position `met_at` on; before, both its factors must be one: `inside`, should
    it have been drawn, `outside`, should it not. NaN where no set of K tokens agrees with the evidence.
    """
    certain, possible = outside == 0, (inside > 0) & (draws.weights > 0)
    n_certain, n_possible = certain.sum(-1), possible.sum(-1)
    agrees = (possible | ~certain).all(-1) & (n_certain <= draws.k) & (n_possible >= draws.k)
    open_, sure = (values.gather(-1, token[..., None])[..., 0] for values in (possible & ~certain, certain))
    result = torch.where(agrees, sure.double(), torch.nan)
    for rows in torch.arange(len(token), device=token.device).split(_CHUNK):
        row, pos = (open_ & agrees)[rows].nonzero(as_tuple=True)
        if len(row):
            start = _not_met(draws, met_at[rows])[row, (met_at[rows][row] > pos[:, None]).sum(1)]
            factors = inside[rows][row, pos], outside[rows][row, pos]
            met = met_at[rows][row] <= pos[:, None]
            result[rows[row], pos] = _share(draws, token[rows][row, pos], start, met, *factors)
    return result


def _not_met(draws: Draws, met_at: Int[Tensor, "batch token"]) -> Complex[Tensor, "batch prefix node power"]:
    """The product over the tokens that are met last, for every number of them."""
    product = torch.zeros(len(met_at), len(draws.times), draws.k + 1, dtype=torch.cdouble, device=met_at.device)
    product[..., 0] = 1
    products = [product]
    for token in met_at.argsort(dim=1, descending=True, stable=True).T:
        products.append(_times(products[-1], draws.waiting[token], draws.arrived[token]))
    return torch.stack(products, 1)


def _share(
    draws: Draws,
    token: Int[Tensor, " case"],
    start: Complex[Tensor, "case node power"],
    met: Bool[Tensor, "case token"],
    inside: Float[Tensor, "case token"],
    outside: Float[Tensor, "case token"],
) -> Float[Tensor, " case"]:
    """Share of the sets with the token among all, given the product over the tokens that have not been met."""
    own = torch.zeros_like(met).scatter(1, token[:, None], True)
    excluded, rest = met & ~own & (inside == 0), met & ~own & (inside > 0)
    product = start * torch.exp(-(excluded.double() @ draws.weights)[:, None] * draws.times)[..., None]
    count, cases = rest.sum(1).sort(descending=True)
    product, order = product[cases], rest.int().argsort(dim=1, descending=True, stable=True)[cases]
    inside, outside, token = inside[cases], outside[cases], token[cases]
    for place in range(int(count[0])):
        n = int((count > place).sum())
        other = order[:n, place, None]
        waiting = draws.waiting[other[:, 0]] * outside[:n].gather(1, other)
        product[:n] = _times(product[:n], waiting, draws.arrived[other[:, 0]] * inside[:n].gather(1, other))
    drawn = product[..., draws.k - 1] * draws.arrived[token] * inside.gather(1, token[:, None])
    left = product[..., draws.k] * draws.waiting[token] * outside.gather(1, token[:, None])
    with_it, without = draws.integral(drawn), draws.integral(left)
    return torch.empty_like(with_it).scatter(0, cases, with_it / (with_it + without))


def _times(
    product: Complex[Tensor, "case node power"],
    constant: Float[Tensor, "case node"],
    linear: Complex[Tensor, "case node"],
) -> Complex[Tensor, "case node power"]:
    """A polynomial, cut off above the K-th power, times a linear one."""
    result = product * constant[..., None]
    result[..., 1:] += product[..., :-1] * linear[..., None]
    return result
