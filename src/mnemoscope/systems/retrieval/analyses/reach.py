"""The number of layers of attention after which a position can know what stands elsewhere in its chain.

Two assumptions of the source (Musat, "Mechanism and emergence of stacked attention heads in multi-layer
transformers"): a position can attend to another one only if they have a piece of information in common, and takes over
all that the other one has. A chain has the places 0 (the query) to 2D, and place i starts with the pieces i - 1 and i:
piece 2k is symbol x_k, piece 2k - 1 the code of pair k. So what a place knows is always an interval of pieces, and the
query knows the answer once it has piece 2D.

Two kinds of layers: with any number of heads a place takes over the intervals of all that it shares a piece with,
which is the best that it can do; with one head it takes over a single one, and what others choose in the same layer
matters later: all joint choices are searched. Attention may be masked, so that only what stands earlier in the sequence
is seen, with the steps in the order of the chain or backwards.

The source's bound is t >= log_3(2D), since an interval of n + 1 pieces can grow to 3n + 1. That is reached by places in
the middle of a chain; the query grows on one side only. Counted exactly, without a mask and with any number of heads it
takes log_3(4D + 1) layers; with a mask, in the order of the chain, log_2(2D + 1), with one head as with many (tested
against the search). That counts what could be known, not what training finds.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Literal

import xarray as xr

from mnemoscope.core import in_range, one_of

Order = Literal["none", "forward", "backward"]
Intervals = tuple[tuple[int, int], ...]
"""First and last piece that each place knows."""
MAX_SEARCHED = 4
"""Steps up to which layers of one head are searched."""


def bound(n_steps: int) -> float:
    """The published lower bound on the number of layers, log_3(2D)."""
    return math.log(2 * n_steps, 3)


def least_layers(n_steps: int, *, mask: Order = "none", one_head: bool = False) -> int:
    """The least number of layers after which the query can know the last symbol of a chain of D = `n_steps`.

    With the mask `none` places see all others; else what stands earlier, with the steps in that order. With `one_head`
    a layer attends to one place at a time. Raises InputError for an unknown order, and for D below 1 or too large to
    search.
    """
    in_range("n_steps", n_steps, 1, MAX_SEARCHED if one_head else math.inf)
    sees = _sees(n_steps, mask)
    states = {_start(n_steps)}
    for layer in itertools.count():
        if any(state[0][1] >= 2 * n_steps for state in states):
            return layer
        if one_head:
            states = _maximal({after for state in states for after in _choices(state, sees)})
        else:
            states = {_after(state, sees) for state in states}
    raise AssertionError


def first_layers(n_steps: int, n_layers: int, *, mask: Order = "none") -> xr.DataArray:
    """The layer after which each place can first know each piece, of `n_layers` layers with any number of heads.

    Over (place, piece): 0 for what a place starts with, NaN where `n_layers` are not enough. Pieces are named by symbol
    (`x2`) or code (`p2`), first `p0`, the code of the query. Arguments and errors are as for `least_layers`.
    """
    in_range("n_steps", n_steps, 1, math.inf)
    in_range("n_layers", n_layers, 0, math.inf)
    sees, state = _sees(n_steps, mask), _start(n_steps)
    pieces = range(-1, 2 * n_steps + 1)
    table = [[math.nan] * len(pieces) for _ in state]
    for layer in range(n_layers + 1):
        for place, (low, high) in enumerate(state):
            for piece in range(low, high + 1):
                if math.isnan(table[place][piece + 1]):
                    table[place][piece + 1] = layer
        state = _after(state, sees)
    names = [f"p{(piece + 1) // 2}" if piece % 2 else f"x{piece // 2}" for piece in pieces]
    coords = {"place": range(len(table)), "piece": names}
    attrs = {"unit": "layers of attention", "n_steps": n_steps, "mask": mask, "published_bound": bound(n_steps)}
    return xr.DataArray(table, dims=("place", "piece"), coords=coords, name="first_layer", attrs=attrs)


def _start(n_steps: int) -> Intervals:
    """Pieces i - 1 and i at place i; the last place has no pair of a later step, the query a code of its own."""
    return tuple((place - 1, place) for place in range(2 * n_steps + 1))


def _sees(n_steps: int, mask: Order) -> list[list[int]]:
    """The other places that each place may attend to."""
    one_of("mask", mask, ("none", "forward", "backward"))
    places = range(2 * n_steps + 1)

    def time(place: int) -> tuple[int, int]:
        """The time of a place in the sequence: its step, and where in the pair."""
        if place == 0:
            return (n_steps + 1, 0)
        step = (place + 1) // 2
        return (step if mask == "forward" else n_steps + 1 - step, (place + 1) % 2)

    return [[j for j in places if j != i and (mask == "none" or time(j) < time(i))] for i in places]


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _joined(intervals: list[tuple[int, int]]) -> tuple[int, int]:
    return min(low for low, _ in intervals), max(high for _, high in intervals)


def _after(state: Intervals, sees: list[list[int]]) -> Intervals:
    """The knowledge of places after a layer in which each attends to all that it may."""
    return tuple(_joined([own, *(state[j] for j in sees[i] if _overlap(own, state[j]))]) for i, own in enumerate(state))


def _choices(state: Intervals, sees: list[list[int]]) -> Iterator[Intervals]:
    """Possible states after a layer in which each place attends to one, or to itself; none knows less than it could."""
    options = []
    for i, own in enumerate(state):
        reachable = {own} | {_joined([own, state[j]]) for j in sees[i] if _overlap(own, state[j])}
        options.append([a for a in reachable if not any(b != a and b[0] <= a[0] and b[1] >= a[1] for b in reachable)])
    return itertools.product(*options)


def _maximal(states: set[Intervals]) -> set[Intervals]:
    """States that no other one contains place by place."""
    kept: list[Intervals] = []
    for state in sorted(states, key=lambda s: sum(low - high for low, high in s)):
        if not any(all(b[0] <= a[0] and b[1] >= a[1] for a, b in zip(state, other, strict=True)) for other in kept):
            kept.append(state)
    return set(kept)
