r"""The number of random associations that a trained matrix or MLP stores: the largest N with 99 % of the answers right.

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
"""

from collections.abc import Callable, Sequence
from functools import partial

import xarray as xr

from mnemoscope.core import in_range
from mnemoscope.systems.memory_theory.analyses.associations import ENOUGH, Associations, associations
from mnemoscope.systems.memory_theory.analyses.exponents import law_capacity
from mnemoscope.systems.memory_theory.analyses.search import largest_stored
from mnemoscope.systems.memory_theory.analyses.training import (
    NEVER,
    Training,
    Weights,
    random_mlp,
    train_together,
    zero_matrix,
)

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
