r"""The sum of outer products that is not trained: how many associations it recalls, and how many theory predicts.

With rows as vectors the matrix is :math:`W = \sum_z e_z^T u_z`, every input having an output of its own. Read by
:math:`e_z` it gives :math:`u_z` and interference of squared length (N - 1)/d, the other outputs weighted by products of
inputs. With random unit vectors in d dimensions all of that is close to normal. The logit of the answer is 1 + a, where
a has variance (N - 1)/d². What is read then has squared length 1 + 2a + (N - 1)/d, and the logit of any other output k
the d-th part of it as variance, and 1/d more since the weight of :math:`u_k` itself is :math:`e_k^T e_z`. Taking the
other outputs as independent, the share recalled is

.. math:: E_a[\Phi((1 + a) / \sigma_a)^{N-1}], \quad a \sim N(0, (N-1)/d^2), \quad
    \sigma_a^2 = 2(1 + a)/d + (N-2)/d^2.

For large d it stays near 1 while N log N is less than a constant share of d²; for small d the term 2/d, which does not
depend on N, takes much of the room.

*Shows* what the construction stores. *Does not show* what a matrix can store: the trained one stores more
(`capacity`).
"""

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from scipy.special import log_ndtr
from torch import Tensor

from mnemoscope.core import in_range
from mnemoscope.systems.memory_theory.analyses.associations import ENOUGH, Associations, associations
from mnemoscope.systems.memory_theory.analyses.search import candidates, largest_stored

_ROWS = 1024
"""Inputs whose logits are computed at a time."""


def outer_products(problem: Associations) -> Float[Tensor, "d d"]:
    """The sum over the inputs of their outer products with their answers, acting on rows."""
    return problem.inputs.T @ problem.outputs[problem.answers]


def recalled(problem: Associations, matrix: Float[Tensor, "d d"]) -> float:
    """The share of the inputs whose answer has the highest logit."""
    read = (problem.inputs @ matrix).split(_ROWS)
    best = torch.cat([(rows @ problem.outputs.T).argmax(1) for rows in read])
    return float((best == problem.answers).double().mean())


def predicted_recall(n: int, d: int) -> float:
    """The share of n inputs, at least two, that normal interference in dimension d leaves recalled."""
    in_range("n", n, 2, float("inf"))
    in_range("d", d, 1, float("inf"))
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    answer = 1 + ((n - 1) / d**2) ** 0.5 * nodes
    variance = 2 * answer.clip(min=0) / d + max(n - 2, 1e-9) / d**2
    recalled_at = np.exp((n - 1) * log_ndtr(answer / variance**0.5))
    return float(weights @ recalled_at / weights.sum())


def predicted_capacity(d: int) -> int:
    """The largest candidate that interference in dimension d leaves stored; 0 if none is."""
    in_range("d", d, 2, float("inf"))
    return max((n for n in candidates(d**2) if predicted_recall(n, d) >= ENOUGH), default=0)


def outer_capacity(d: Sequence[int], *, draws: Sequence[int]) -> xr.Dataset:
    """Associations that sums of outer products store: `capacity` over (d, draw); over d `parameters`, `predicted`."""
    predicted = [predicted_capacity(width) for width in d]
    found = [_capacities(width, guess, draws) for width, guess in zip(d, predicted, strict=True)]
    data = {
        "capacity": (("d", "draw"), found),
        "parameters": ("d", [width**2 for width in d]),
        "predicted": ("d", predicted),
    }
    attrs = {"unit": "associations", "criterion": f"accuracy of at least {ENOUGH:g}", "memory": "sum of outer products"}
    return xr.Dataset(data, coords={"d": list(d), "draw": list(draws)}, attrs=attrs)


def _capacities(d: int, guess: int, draws: Sequence[int]) -> list[int]:
    problems = [associations(d**2, d, draw=draw) for draw in draws]

    def ask(pairs: Sequence[tuple[int, int]]) -> list[bool]:
        asked = [problems[problem].first(n) for problem, n in pairs]
        return [recalled(each, outer_products(each)) >= ENOUGH for each in asked]

    return largest_stored(ask, [guess] * len(draws), most=d**2)
