"""The search for the largest number of associations against a loop that trains one problem at a time."""

from collections.abc import Mapping, Sequence
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.systems.memory_theory.associations import Associations, associations, candidates
from mnemoscope.systems.memory_theory.capacity import MATRIX, law_capacity, matrix_capacity
from timing import Contender, Figure, duration, interleave, ratio

SIZES = {"8 to 16": (8, 11, 16), "32": (32,)}
"""Dimensions by their name in the figure."""
DRAWS = range(1000, 1016)
CANDIDATES_PER_PARAMETER = 8


def is_stored(problem: Associations) -> bool:
    """Train one matrix as one would write it down, with torch's Adam; it stops when the associations are stored."""
    matrix = torch.zeros(problem.inputs.shape[1], problem.outputs.shape[1], requires_grad=True)
    adam = torch.optim.Adam([matrix], lr=MATRIX.learning_rate, fused=True)
    for step in range(MATRIX.n_steps + 1):
        logits = problem.inputs @ matrix @ problem.outputs.T
        if step > 0 and _n_right(logits, problem.answers) >= problem.n_needed:
            return True
        adam.zero_grad()
        F.cross_entropy(logits, problem.answers).backward()
        adam.step()
    return False


@torch.no_grad()
def _n_right(logits: Tensor, answers: Tensor) -> int:
    return int((logits.argmax(1) == answers).sum())


def capacity_in_a_loop(d: int, draw: int) -> int:
    """Bisection of the same candidates, begun at the same guess: up or down by doubled strides, then halves."""
    most = CANDIDATES_PER_PARAMETER * d**2
    grid, problem = candidates(most), associations(most, d, draw=draw)
    guess = law_capacity(d**2, share=0.85)
    place, stride = min(range(len(grid)), key=lambda i: abs(grid[i] - guess)), 2
    low, high = -1, len(grid)
    while high - low > 1:
        if is_stored(problem.first(grid[place])):
            low = place
        else:
            high = place
        between = low >= 0 and high < len(grid)
        place = (low + high) // 2 if between else min(low + stride, high - 1) if low >= 0 else max(0, high - stride)
        stride *= 2
    return grid[low] if low >= 0 else 0


def ours(d: Sequence[int], draws: Sequence[int]) -> Contender:
    """All draws together."""

    def work() -> float:
        matrix_capacity(d, draws=draws)
        return float(len(d) * len(draws))

    return work


def loop(d: Sequence[int], draws: Sequence[int]) -> Contender:
    """One draw, dimension and number of associations at a time."""

    def work() -> float:
        for width in d:
            for draw in draws:
                capacity_in_a_loop(width, draw)
        return float(len(d) * len(draws))

    return work


def same_answers(d: Sequence[int], draws: Sequence[int]) -> Figure:
    """The number of capacities that differ."""
    found = matrix_capacity(d, draws=draws).capacity
    different = sum(
        capacity_in_a_loop(width, draw) != int(found.sel(d=width, draw=draw)) for width in d for draw in draws
    )
    note = f"of {found.size}, d {d[0]} to {d[-1]}"
    return Figure(
        group="capacity", name="answers that differ", value=float(different), unit="", aim=0.0, at_most=True, note=note
    )


def search(repetitions: int, *, quick: bool = False) -> list[Figure]:
    """Searches per second on one core. The loop takes some draws only: its time is that of each, added up."""
    sizes = {"8": (8,)} if quick else SIZES
    n_loop = 1 if quick else 2
    figures = [same_answers(next(iter(sizes.values())), DRAWS[:n_loop])]
    for name, d in sizes.items():
        seconds = interleave({"ours": ours(d, DRAWS), "loop": loop(d, DRAWS[:n_loop])}, repetitions)
        figures.append(_figure(f"search over N, d = {name}: loop / ours", seconds))
    return figures


def _figure(name: str, seconds: Mapping[str, Sequence[float]]) -> Figure:
    middle, spread = ratio(seconds["loop"], seconds["ours"])
    note = (
        " and ".join(duration(median(seconds[who])) for who in ("loop", "ours"))
        + f" a draw and size, {len(DRAWS)} draws"
    )
    return Figure(group="capacity", name=name, value=middle, unit="x", spread=spread, aim=10.0, note=note)
