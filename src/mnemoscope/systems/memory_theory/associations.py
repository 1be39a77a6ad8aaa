r"""Random associations, and the search for the largest number of them that is stored.

Random associations: inputs and outputs with random unit embeddings, and an answer for each input.

The first n associations of a draw are the same whatever n is: a larger problem contains the smaller ones.

The largest number of associations that are stored, for many problems at once.

Candidates lie on a grid of `PER_OCTAVE` numbers per factor of two (all numbers where these are closer than whole
numbers). So the result lies at most 4.4 % below the largest number that is stored. The search goes up, or down, from a
first guess in strides that double until it has a number that is stored and one that is not. Then it divides what lies
between. All problems take each round together.

*Assumes* that what is stored grows no easier with more associations. If that fails near the threshold, what is found
is one number that is stored with a next one that is not, and another search could find another.
"""

import math
from collections.abc import Callable, Sequence
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
        return normalize(torch.randn(n, d, generator=stream, dtype=torch.float32), dim=1)
    if n > d:
        raise InputError(f"n must be at most d = {d} where vectors are orthonormal; got {n}; leave out orthonormal")
    return torch.linalg.qr(torch.randn(d, d, generator=stream, dtype=torch.float32))[0][:n]


PER_OCTAVE = 16
_STRIDE = PER_OCTAVE // 8
_UNKNOWN = -2

Ask = Callable[[Sequence[tuple[int, int]]], Sequence[bool]]
"""From pairs of a problem's number and a number of associations to whether these are stored."""


def candidates(most: int) -> list[int]:
    """Numbers of associations from 2 to at most `most`."""
    in_range("most", most, 2, math.inf)
    steps = range(math.floor(PER_OCTAVE * math.log2(most)) + 1)
    return sorted({round(2 ** (step / PER_OCTAVE)) for step in steps} - {0, 1})


def largest_stored(ask: Ask, guesses: Sequence[int], *, most: int, ways: int = 1) -> list[int]:
    """The largest candidate that is stored, for each problem; 0 where not even the least one is.

    Each search begins near its guess. `ask` gets many questions at once: once an answer is bracketed, `ways` candidates
    of each problem in a round. Raises InputError without a candidate, without one to ask in a round, or where the
    largest candidate is stored, so that the answer is not known.
    """
    in_range("ways", ways, 1, math.inf)
    grid = candidates(most)
    brackets = [(_UNKNOWN, len(grid) + 1)] * len(guesses)
    starts = [min(range(len(grid)), key=lambda i: abs(grid[i] - guess)) for guess in guesses]
    strides = [_STRIDE] * len(guesses)
    while asked := [
        (problem, place)
        for problem, bracket in enumerate(brackets)
        for place in _next(bracket, starts[problem], strides[problem], len(grid), ways)
    ]:
        outcomes = ask([(problem, grid[place]) for problem, place in asked])
        for (problem, place), stored in zip(asked, outcomes, strict=True):
            low, high = brackets[problem]
            brackets[problem] = (max(low, place), high) if stored else (low, min(high, place))
        for problem in {problem for problem, _ in asked}:
            low, high = brackets[problem]
            strides[problem] *= 2
            if low >= high:  # stored above a number that is not: keep the lower one as the first that is not
                brackets[problem] = (high - 1, high)
    if any(low == len(grid) - 1 for low, _ in brackets):
        raise InputError(f"most must exceed what is stored; {grid[-1]} associations are; search further")
    return [grid[low] if low >= 0 else 0 for low, _ in brackets]


def _next(bracket: tuple[int, int], start: int, stride: int, n: int, ways: int) -> list[int]:
    """Places on the grid to be asked; none where the answer is known."""
    low, high = bracket
    if low == _UNKNOWN and high == n + 1:
        return [start]
    if high == n + 1:
        return [min(n - 1, low + stride)] if low < n - 1 else []
    if low == _UNKNOWN:
        return [max(0, high - stride)] if high > 0 else []
    between = high - low - 1
    parts = min(ways, between)
    return sorted({low + round((between + 1) * (i + 1) / (parts + 1)) for i in range(parts)} - {low, high})
