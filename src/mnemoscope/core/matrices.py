"""Products of two factors, read without multiplying them out.

A circuit of a head is a product left @ right whose inner dimension is the width of the head. Its singular values,
norm and eigenvalues follow from small matrices: with QR decompositions left = Q_l R_l and right^T = Q_r R_r they are
those of R_l R_r^T, and the nonzero eigenvalues of left @ right are those of right @ left.
"""

import torch
from jaxtyping import Complex, Float
from torch import Tensor


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
