r"""Capacity of memories, trained or written down: the largest number of associations stored, and its growth.

The number of random associations that a trained matrix or MLP stores: the largest N with 99 % of the answers right.

N random unit vectors of dimension d in, N out. A d × d matrix starts at zero and is trained by Adam on all of them
(`training`), with 4,096 steps; published are these sizes, d from 2^3 to 2^8 by half powers, five draws, and the line

.. math:: N \log N \propto d^2

(Bietti et al. 2023, "Birth of a Transformer: A Memory Viewpoint", and its public code). The MLP is
:math:`\mathrm{ReLU}(e W_1) W_2` of width m = αd, with rate 0.03, 2^15 steps at most, and outputs as many as inputs, or
32 of them. It is counted as α·d² parameters, as published; trained are twice as many. The rate of the matrix is not
published, nor how weights start.

Scaled down here: d up to 2^6, MLPs up to 2^5 and with 4,096 steps. `HALF_POWERS` and `PUBLISHED_MLP` are the published
ones.

*Shows* how many associations this training finds. *Does not show* how many could be stored: more steps would store
more, and so would a larger share of errors.

The sum of outer products that is not trained: how many associations it recalls, and how many theory predicts.

With rows as vectors the matrix is :math:`W = \sum_z e_z^T u_z`, every input having an output of its own. Read by
:math:`e_z` it gives :math:`u_z` and interference of squared length (N - 1)/d, the other outputs weighted by products of
inputs. With random unit vectors in d dimensions all of that is close to normal. The logit of the answer is 1 + a, where
a has variance (N - 1)/d². What is read then has squared length 1 + 2a + (N - 1)/d, and the logit of any other output k
has the d-th part of it as variance. To this comes 1/d, since the weight of :math:`u_k` itself is :math:`e_k^T e_z`.
Taking the other outputs as independent, the share recalled is

.. math:: E_a[\Phi((1 + a) / \sigma_a)^{N-1}], \quad a \sim N(0, (N-1)/d^2), \quad
    \sigma_a^2 = 2(1 + a)/d + (N-2)/d^2.

For large d it stays near 1 while N log N is less than a constant share of d²; for small d the term 2/d, which does not
depend on N, takes much of the room.

*Shows* what the construction stores. *Does not show* what a matrix can store: the trained one stores more
(`capacity`).

Growth of capacity with the number of parameters: slopes of lines through logarithms.

The published line is :math:`N \log N = c P` for P parameters: log(N ln N) against log P has slope 1. Without the
logarithm, log N against log P has slope 1; if capacity grew like the width of a matrix, 1/2. Each draw has slopes of
its own, by least squares over its sizes, and their mean has an interval over draws (`mnemoscope.core.mean_interval`):
the residuals of one line, which share embeddings and bend, say nothing about it.

*Does not show* that the law is a power law: over a factor of 64 in parameters, N and N log N are told apart by slopes
that differ by about .2.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from scipy.special import log_ndtr
from torch import Tensor

from mnemoscope import InputError
from mnemoscope.core import in_range
from mnemoscope.systems.memory_theory.associations import ENOUGH, Associations, associations, candidates, largest_stored
from mnemoscope.systems.memory_theory.training import NEVER, Training, Weights, random_mlp, train_together, zero_matrix

HALF_POWERS = tuple(round(2 ** (k / 2)) for k in range(6, 17))
"""Published dimensions, 8 to 256."""
MATRIX = Training(learning_rate=0.1, n_steps=4096)
MLP = Training(learning_rate=0.03, n_steps=4096)
PUBLISHED_MLP = Training(learning_rate=0.03, n_steps=2**15)
_CEILING = 8
"""Candidates go up to so many associations per parameter."""
_SMALL = 16
"""Up to this dimension steps cost little, and several candidates of a problem are trained in a round."""
_MATRIX_GUESS, _MLP_GUESS = 0.85, 2.7
"""N ln N per parameter where the search begins, from draws from 1000 on. It decides how long the search takes."""


def matrix_capacity(d: Sequence[int], *, draws: Sequence[int], training: Training = MATRIX) -> xr.Dataset:
    """The number of associations that trained matrices of each dimension store: `capacity` over d and draw.

    `parameters` is over d. Raises InputError without a dimension or a draw.
    """
    found = [
        _capacities(width, draws, training, partial(_zero, d=width), parameters=width**2, guess=_MATRIX_GUESS)
        for width in d
    ]
    return _labelled(found, d, draws, [width**2 for width in d], training, memory="matrix", outputs="as many as inputs")


def mlp_capacity(
    d: Sequence[int],
    *,
    draws: Sequence[int],
    alpha: float = 1.0,
    n_outputs: int | None = None,
    training: Training = MLP,
) -> xr.Dataset:
    """The number of associations that trained MLPs of width α·d store; `n_outputs` is by default that of inputs.

    It is as for `matrix_capacity`, except that `parameters` are α·d², half of those that are trained. Raises InputError
    also without a neuron, or with only one output.
    """
    in_range("alpha", alpha, 1 / min(d, default=1), float("inf"))
    parameters = [round(alpha * width**2) for width in d]
    found = [
        _capacities(
            width,
            draws,
            training,
            partial(random_mlp, width, round(alpha * width)),
            parameters=each,
            guess=_MLP_GUESS,
            n_outputs=n_outputs,
        )
        for width, each in zip(d, parameters, strict=True)
    ]
    outputs = "as many as inputs" if n_outputs is None else str(n_outputs)
    return _labelled(found, d, draws, parameters, training, memory=f"MLP, alpha {alpha:g}", outputs=outputs)


def _zero(*, d: int, draw: int) -> Weights:
    return zero_matrix(d)


def _capacities(
    d: int,
    draws: Sequence[int],
    training: Training,
    start: Callable[..., Weights],
    *,
    parameters: int,
    guess: float,
    n_outputs: int | None = None,
) -> list[int]:
    in_range("d", d, 2, float("inf"))
    most = _CEILING * parameters
    problems = [associations(most, d, draw=draw, n_outputs=n_outputs) for draw in draws]
    starts = [start(draw=draw) for draw in draws]

    def ask(pairs: Sequence[tuple[int, int]]) -> list[bool]:
        return stored(
            [problems[problem].first(n) for problem, n in pairs], [starts[problem] for problem, _ in pairs], training
        )

    begin = round(law_capacity(parameters, share=guess))
    return largest_stored(ask, [begin] * len(draws), most=most, ways=3 if d <= _SMALL else 1)


def stored(problems: Sequence[Associations], starts: Sequence[Weights], training: Training) -> list[bool]:
    """True for each problem that training stores, all of them together; arguments as for `train_together`."""
    return [step != NEVER for step in train_together(problems, starts, training)]


def _labelled(
    found: Sequence[Sequence[int]],
    d: Sequence[int],
    draws: Sequence[int],
    parameters: Sequence[int],
    training: Training,
    **attrs: str,
) -> xr.Dataset:
    data = {"capacity": (("d", "draw"), [list(row) for row in found]), "parameters": ("d", list(parameters))}
    attrs |= {"unit": "associations", "criterion": f"accuracy of at least {ENOUGH:g}", "optimiser": "Adam"}
    steps = {"learning_rate": training.learning_rate, "n_steps": training.n_steps}
    return xr.Dataset(data, coords={"d": list(d), "draw": list(draws)}, attrs={**attrs, **steps})


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


@cache
def _normal_nodes() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss's rule for means over a normal distribution."""
    return np.polynomial.hermite_e.hermegauss(64)


def predicted_recall(n: int, d: int) -> float:
    """The share of n inputs, at least two, that normal interference in dimension d leaves recalled."""
    in_range("n", n, 2, float("inf"))
    in_range("d", d, 1, float("inf"))
    nodes, weights = _normal_nodes()
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
    found = [_outer_capacities(width, guess, draws) for width, guess in zip(d, predicted, strict=True)]
    data = {
        "capacity": (("d", "draw"), found),
        "parameters": ("d", [width**2 for width in d]),
        "predicted": ("d", predicted),
    }
    attrs = {"unit": "associations", "criterion": f"accuracy of at least {ENOUGH:g}", "memory": "sum of outer products"}
    return xr.Dataset(data, coords={"d": list(d), "draw": list(draws)}, attrs=attrs)


def _outer_capacities(d: int, guess: int, draws: Sequence[int]) -> list[int]:
    problems = [associations(d**2, d, draw=draw) for draw in draws]

    def ask(pairs: Sequence[tuple[int, int]]) -> list[bool]:
        asked = [problems[problem].first(n) for problem, n in pairs]
        return [recalled(each, outer_products(each)) >= ENOUGH for each in asked]

    return largest_stored(ask, [guess] * len(draws), most=d**2)


LAW, PLAIN = "N log N", "N"
"""Functions of capacity that are fitted to the number of parameters."""


def law_capacity(parameters: float, *, share: float = 1.0) -> float:
    """N with N ln N a share of the parameters, by Newton's method; that share must be positive."""
    if not share * parameters > 0:
        raise InputError(f"share * parameters must be positive; got {share * parameters!r}")
    n = math.e
    for _ in range(50):
        n -= (n * math.log(n) - share * parameters) / (math.log(n) + 1)
    return n


def amounts(capacity: xr.DataArray) -> xr.DataArray:
    """N ln N and N along a new dimension `law`; N ln N is 0 for N = 1."""
    both = [capacity * np.log(capacity.clip(min=1)), capacity]
    return xr.concat(both, xr.DataArray([LAW, PLAIN], dims="law", name="law"))


def growth(capacity: xr.DataArray, parameters: xr.DataArray) -> xr.Dataset:
    """Slopes of every draw; capacities are over a dimension of sizes, such as d, and draw.

    `slope` and `intercept` (at one parameter, natural logarithm) are over law and draw; NaN for a draw that stores
    fewer than two associations somewhere. Raises InputError without two different sizes.
    """
    (size,) = parameters.dims
    if len(np.unique(parameters)) < 2:
        raise InputError(f"parameters must differ between at least two sizes; got {parameters.values.tolist()}")
    logs = amounts(capacity).transpose("law", "draw", size)
    lines = [[_line(parameters.values.astype(float), row) for row in law] for law in logs.values]
    slope, intercept = np.moveaxis(np.array(lines), -1, 0)
    coords = {"law": logs.law.values, "draw": logs.draw.values}
    data = {"slope": (("law", "draw"), slope), "intercept": (("law", "draw"), intercept)}
    attrs = {"unit": "slope of natural logarithms", "fit": "least squares, each draw by itself"}
    return xr.Dataset(data, coords=coords, attrs=attrs)


def _line(parameters: Float[np.ndarray, " size"], amount: Float[np.ndarray, " size"]) -> tuple[float, float]:
    if (amount <= 0).any():
        return np.nan, np.nan
    slope, intercept = np.polyfit(np.log(parameters), np.log(amount), 1)
    return float(slope), float(intercept)
