"""What one gradient step from zero stores.

Every input z of N is equally likely and is followed by f(z), f a random function. From the zero matrix one step of
gradient descent on the whole distribution gives, whatever its size and by `association_gradient`,

    W ~ sum_z e_z^T (u_f(z) - mean of u) / N

with rows as vectors. Recall is the share of inputs z whose f(z) is the argmax over k of e_z W u_k^T. With embeddings
that are orthogonal it is 1; with random unit vectors in d dimensions other associations interfere, by about
sqrt(2/d + N/d^2). Bietti et al. 2023, "Birth of a Transformer: A Memory Viewpoint", section on gradients as memories.

*Shows* how much one step stores when embeddings are nearly orthonormal, and where they no longer are.

*Does not show* how much the matrix could store: later steps correct mistakes (see memory capacity).
"""

from collections.abc import Sequence

import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import generator
from mnemoscope.core import in_range
from mnemoscope.systems.in_context_bigrams.analyses.gradient_memories.gradient import association_gradient


def one_step(
    inputs: Float[Tensor, "input d_in"],
    outputs: Float[Tensor, "output d_out"],
    answers: Int[Tensor, " input"],
) -> Float[Tensor, "d_in d_out"]:
    """The matrix after one gradient step of size 1 from zero, inputs equally likely.

    Args:
        inputs: One embedding per row.
        outputs: One per row.
        answers: f(z), the number of an output.
    """
    joint = torch.zeros(len(inputs), len(outputs), dtype=inputs.dtype)
    joint[torch.arange(len(inputs)), answers] = 1 / len(inputs)
    return -association_gradient(inputs.new_zeros(inputs.shape[1], outputs.shape[1]), inputs, outputs, joint)


def recalled_after_one_step(n: int, d: int, *, seed: int, permuted: bool = False) -> float:
    """Share of N inputs whose answer one step stores.

    Args:
        n: Inputs, and outputs.
        d: Dimension of their random unit embeddings.
        seed: Draws embeddings and answers.
        permuted: Ask for the answers of a random other order of the inputs: what is not stored.

    Raises:
        InputError: There are fewer than two inputs, or no dimension.
    """
    in_range("n", n, 2, float("inf"))
    in_range("d", d, 1, float("inf"))
    draws = generator(seed, "one step", n, d)
    inputs, outputs = (
        torch.nn.functional.normalize(torch.randn(n, d, generator=draws, dtype=torch.double), dim=1) for _ in range(2)
    )
    answers = torch.randint(n, (n,), generator=draws)
    best = (inputs @ one_step(inputs, outputs, answers) @ outputs.T).argmax(1)
    asked = answers[torch.randperm(n, generator=draws)] if permuted else answers
    return float((best == asked).double().mean())


def one_step_recall(n: Sequence[int], d: Sequence[int], *, seeds: Sequence[int]) -> xr.Dataset:
    """Recall after one step, over sizes and draws.

    Args:
        n: Numbers of inputs.
        d: Widths.
        seeds: Draws.

    Returns:
        `recall` over n, d and draw.

    Raises:
        InputError: As `recalled_after_one_step`.
    """
    shares = [[[recalled_after_one_step(i, j, seed=seed) for seed in seeds] for j in d] for i in n]
    coords = {"n": list(n), "d": list(d), "draw": list(seeds)}
    attrs = {"unit": "share of inputs", "embeddings": "random unit vectors", "start": "zero", "n_steps": 1}
    return xr.Dataset({"recall": (("n", "d", "draw"), shares)}, coords=coords, attrs=attrs)
