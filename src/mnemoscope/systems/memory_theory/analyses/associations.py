"""Random associations: inputs and outputs with random unit embeddings, and an answer for each input.

The first n associations of a draw are the same whatever n is: a larger problem contains the smaller ones.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from mnemoscope import InputError, generator
from mnemoscope.core import in_range

ENOUGH = 0.99
"""Share of inputs that must be answered correctly for the associations to count as stored, as published."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Associations:
    """Unit vectors as inputs and outputs, one per row, and for each input the number of its output.

    The product of an output with what a model returns is its logit. With `own` every input has an output of its own, in
    the same order.
    """

    inputs: Float[Tensor, "input d"]
    outputs: Float[Tensor, "output d"]
    answers: Int[Tensor, " input"]
    own: bool = True

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def n_needed(self) -> int:
        """The number of inputs that must be answered correctly."""
        return math.ceil(ENOUGH * len(self) - 1e-9)

    def first(self, n: int) -> "Associations":
        """The first n inputs; with their outputs where each has its own, else with all."""
        in_range("n", n, 2, len(self))
        return Associations(
            inputs=self.inputs[:n],
            outputs=self.outputs[:n] if self.own else self.outputs,
            answers=self.answers[:n],
            own=self.own,
        )

    def permuted(self, seed: int) -> "Associations":
        """The same with the answers of other inputs: what a memory of these does not store."""
        order = torch.randperm(len(self), generator=generator(seed, "permuted answers", len(self)))
        return Associations(inputs=self.inputs, outputs=self.outputs, answers=self.answers[order], own=False)


def associations(n: int, d: int, *, draw: int, n_outputs: int | None = None, orthonormal: bool = False) -> Associations:
    """Associations of n random unit vectors of dimension d, or of orthonormal ones.

    Each answer is drawn among `n_outputs` outputs; None: every input has an output of its own. Both numbers are at
    least two; orthonormal vectors are no more than dimensions.
    """
    in_range("n", n, 2, math.inf)
    in_range("d", d, 1, math.inf)
    stream = generator(draw, "associations", n, d)
    n_vectors = n if n_outputs is None else n_outputs
    in_range("n_outputs", n_vectors, 2, math.inf)
    inputs, outputs = (_vectors(count, d, stream, orthonormal) for count in (n, n_vectors))
    answers = torch.arange(n) if n_outputs is None else torch.randint(n_outputs, (n,), generator=stream)
    return Associations(inputs=inputs, outputs=outputs, answers=answers, own=n_outputs is None)


def _vectors(n: int, d: int, stream: torch.Generator, orthonormal: bool) -> Float[Tensor, "vector d"]:
    if not orthonormal:
        return normalize(torch.randn(n, d, generator=stream), dim=1)
    if n > d:
        raise InputError(f"n must be at most d = {d} where vectors are orthonormal; got {n}; leave out orthonormal")
    return torch.linalg.qr(torch.randn(d, d, generator=stream))[0][:n]
