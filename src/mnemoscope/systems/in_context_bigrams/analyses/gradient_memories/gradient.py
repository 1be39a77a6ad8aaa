r"""The gradient of a linear associative memory, in closed form.

Inputs :math:`e_z` are read by a matrix W whose scores for the outputs :math:`u_k` are logits. For the cross-entropy
:math:`L(W) = E_{z,y}[\ell(y, (u_k^T W e_z)_k)]`,

.. math:: \nabla L(W) = \sum_k E_z[(p_W(k|z) - p(k|z))\, u_k e_z^T],

so that one step of gradient descent adds associations of each input with the outputs that follow it more often than
is predicted (Bietti et al. 2023, "Birth of a Transformer: A Memory Viewpoint", lemma 1). Vectors are rows here, as in
TransformerLens: the scores are :math:`e_z W u_k^T`, and the gradient is the transpose of the paper's.

*Shows* that the formula is the gradient, to rounding.

*Does not show* what training finds: inside a transformer, inputs are sums of embeddings, and other matrices move too.
"""

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope import InputError, generator
from mnemoscope.core import in_range

MOST = 24
"""Largest number of inputs, outputs or dimensions of a random problem."""


def association_gradient(
    matrix: Float[Tensor, "d_in d_out"],
    inputs: Float[Tensor, "input d_in"],
    outputs: Float[Tensor, "output d_out"],
    joint: Float[Tensor, "input output"],
) -> Float[Tensor, "d_in d_out"]:
    """Gradient of the mean cross-entropy by the formula.

    Args:
        matrix: W, acting on rows.
        inputs: One embedding per row.
        outputs: One vector per row; its score is its logit.
        joint: p(z, k), adding up to one.

    Raises:
        InputError: `joint` is no distribution.
    """
    _check(joint)
    predicted = (inputs @ matrix @ outputs.T).softmax(1)
    return inputs.T @ (joint.sum(1, keepdim=True) * predicted - joint) @ outputs


def loss(
    matrix: Float[Tensor, "d_in d_out"],
    inputs: Float[Tensor, "input d_in"],
    outputs: Float[Tensor, "output d_out"],
    joint: Float[Tensor, "input output"],
) -> Float[Tensor, ""]:
    """Mean cross-entropy in nats; arguments as for `association_gradient`."""
    _check(joint)
    return -(joint * (inputs @ matrix @ outputs.T).log_softmax(1)).sum()


def against_autograd(*, seed: int, n: int = 8) -> xr.Dataset:
    """The formula and automatic differentiation on random problems, in float64.

    Numbers of inputs and outputs, both widths, embeddings, the matrix and the distribution are all drawn.

    Args:
        seed: Of the problems.
        n: How many.

    Returns:
        Over `problem`: `difference`, the largest difference of an entry relative to the largest entry of the gradient;
        `difference_without_predictions`, the same for a wrong formula that leaves out p_W.

    Raises:
        InputError: There are no problems.
    """
    in_range("n", n, 1, float("inf"))
    rows = [_compare(generator(seed, "problem", i)) for i in range(n)]
    data = {name: ("problem", [row[name] for row in rows]) for name in rows[0]}
    attrs = {"unit": "share of the largest entry of the gradient", "n": n, "dtype": "float64"}
    return xr.Dataset(data, coords={"problem": range(n)}, attrs=attrs)


def _compare(draws: torch.Generator) -> dict[str, float]:
    n_in, n_out, d_in, d_out = torch.randint(2, MOST + 1, (4,), generator=draws).tolist()

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draws, dtype=torch.double)

    inputs, outputs = normal(n_in, d_in) / d_in**0.5, normal(n_out, d_out) / d_out**0.5
    matrix = normal(d_in, d_out).requires_grad_()
    joint = normal(n_in * n_out).softmax(0).view(n_in, n_out)
    (exact,) = torch.autograd.grad(loss(matrix, inputs, outputs, joint), matrix)
    matrix = matrix.detach()
    formula = association_gradient(matrix, inputs, outputs, joint)
    observed = inputs.T @ joint @ outputs
    found = {"difference": formula, "difference_without_predictions": -observed}
    return {name: float((value - exact).abs().max() / exact.abs().max()) for name, value in found.items()}


def _check(joint: Float[Tensor, "input output"]) -> None:
    if joint.min() < 0 or abs(float(joint.sum()) - 1) > 1e-6:
        raise InputError(f"joint must be probabilities that add up to 1; they add up to {float(joint.sum()):g}")
