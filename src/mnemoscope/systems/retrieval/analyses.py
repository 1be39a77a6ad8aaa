"""Measurements on models that solve the retrieval problem, and what could be known without one.

Attention of each head from one place of a chain to another: the paths that a circuit is made of.

Places are those of `Retrieval`: 0 the query, 2j - 1 and 2j the first and second symbol of its pair of step j. The
attention of a place is averaged over sequences and chains; what does not go to the own chain is `elsewhere`.

*Does not show* what is used: attention is correlational. `circuit` replaces it.

The circuit of a model that follows chains: which head fetches what, from which place to which.

For every head the simplest of these is taken that holds the loss: attention to all alike, to itself, to the previous
position, to an earlier occurrence of the same symbol, and to places of the own chain, which are read off the head: from
each place the one that gets at least half of its attention. All heads are replaced together, and paths are dropped as
long as none is needed (`mnemoscope.analyses.find_circuit`).

The steps at which the paths of a circuit appear in training, and those at which their symbols are learned.

Attention along a path is that of the head that attends most along it, averaged over 32 sequences, at every kept
checkpoint (`report.trajectory`). The source linked checkpoints by straight lines; here a path appears at the first
checkpoint at which it has half of its attention.

*Shows* what comes first; *does not show* that it is needed for what comes next.

The number of layers of attention after which a position can know what stands elsewhere in its chain.

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
from collections.abc import Iterator, Sequence
from functools import cache, reduce
from itertools import combinations, product
from typing import Any, Literal

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope import Batch, HookedModel, InputError
from mnemoscope.analyses import AttentionCircuit, find_circuit, layer_attention
from mnemoscope.core import Mechanism, in_range, one_of
from mnemoscope.core.patterns import attends_to, identity, previous, same_value, uniform, with_fallback

ELSEWHERE = "elsewhere"


def chain_attention(model: HookedModel, batch: Batch, *, layers: Sequence[int] | None = None) -> xr.DataArray:
    """Mean attention within chains, in all layers or some, over (layer, head, place, to); rows add up to one.

    `to` has the places and `elsewhere`. Chains that were rewired count as far as a query leads along them. Raises
    InputError where the model does not fit the batch.
    """
    places, chosen = n_places(batch), list(range(model.cfg.n_layers) if layers is None else layers)
    found = []
    for layer in chosen:
        means = between_places(layer_attention(model, layer, batch), batch)
        found.append(torch.cat((means, 1 - means.sum(-1, keepdim=True)), -1))
    coords = {
        "layer": chosen,
        "head": list(range(model.cfg.n_heads)),
        "place": list(range(places)),
        "to": [*map(str, range(places)), ELSEWHERE],
    }
    attrs = {"unit": "share of attention", "n": len(batch), "weights": "unprocessed"}
    return xr.DataArray(torch.stack(found).numpy(), dims=tuple(coords), coords=coords, name="attention", attrs=attrs)


def between_places(
    weights: Float[Tensor, "batch head_index query key"], batch: Batch
) -> Float[Tensor, "head_index place to"]:
    """Mean weight that positions of a place give to each place of their own chain, on the CPU; NaN counts as none."""
    places = range(n_places(batch))
    own = torch.stack([_of(batch, i) for i in places]).cpu()
    share = own.to(weights.dtype) / own.sum((1, 2), keepdim=True)
    keys = torch.stack([batch.latents[f"at_{j}"] for j in places], -1).cpu()
    at = keys.clamp(min=0)[:, None].expand(-1, weights.shape[1], -1, -1)
    within = weights.cpu().nan_to_num().gather(-1, at) * (keys >= 0)[:, None]
    return torch.einsum("ibq,bhqj->hij", share, within)


def n_places(batch: Batch) -> int:
    """The number of places of a chain; an `InputError` where the batch is of another task."""
    n = sum(name.startswith("at_") for name in batch.latents)
    if not n or "place" not in batch.latents:
        raise InputError("the batch must come from the retrieval problem, whose latents name the places of chains")
    return n


def _of(batch: Batch, place: int) -> Bool[Tensor, "batch pos"]:
    """Positions of a place in chains that a query leads along."""
    return (batch.latents["place"] == place) & (batch.latents["chain"] >= 0)


def path_name(place: int, to: int) -> str:
    """A path, as mechanisms and trajectories call it."""
    return f"{place}→{to}"


@cache
def within_chain(place: int, to: int) -> Mechanism:
    """Attention from one place of a chain to another one of the same chain; it says nothing about other places."""

    def keys(batch: Batch, query: Tensor, key: Tensor) -> Tensor:
        return _of(batch, place)[..., None] & (key == batch.latents[f"at_{to}"][..., None])

    return attends_to(path_name(place, to), keys)


def strongest(attention: xr.DataArray, level: float) -> Sequence[tuple[int, int]]:
    """From each place the other place of its chain with most attention of one head, if at least the share `level`."""
    within = attention.sel(to=[to for to in attention.to.values if to != ELSEWHERE])
    found = []
    for place, row in zip(within.place.values.tolist(), within.values, strict=True):
        best = int(row.argmax())
        if best != place and row[best] >= level:
            found.append((place, best))
    return found


Later = Literal["set", "learned"]
LEVEL = 0.5
"""Share of attention from which a place counts as attended to, as in the source."""
MAX_SUBSETS = 4
"""Paths of a head of which every set is tried; of more, each one and all together."""
SIMPLE = (uniform(), identity(), previous(), same_value("symbol"))
"""Mechanisms for every head, from the simplest on."""


def chain_circuit(model: HookedModel, batch: Batch, **options: Any) -> AttentionCircuit:
    """The attention circuit of a model on sequences of the retrieval problem.

    Half of the sequences serve to choose mechanisms, the others to test them. Options are those of
    `mnemoscope.analyses.find_circuit`. Raises InputError where the model does not fit the batch.
    """
    by_layer: dict[int, xr.DataArray] = {}

    def own(model: HookedModel, head: tuple[int, int], batch: Batch) -> list[Mechanism]:
        layer, number = head
        if layer not in by_layer:
            by_layer[layer] = chain_attention(model, batch, layers=[layer]).sel(layer=layer)
        return read_off(by_layer[layer].sel(head=number))

    return find_circuit(model, batch, SIMPLE, own=own, **options)


def read_off(attention: xr.DataArray) -> list[Mechanism]:
    """Mechanisms from the attention of one head, over (place, to): single paths, and sets of them."""
    paths = [within_chain(*path) for path in strongest(attention, LEVEL)]
    sizes = range(1, len(paths) + 1) if len(paths) <= MAX_SUBSETS else sorted({1, len(paths)})
    return [reduce(with_fallback, some) for size in sizes for some in combinations(paths, size)]


def path_table(circuit: AttentionCircuit, model: HookedModel, batch: Batch, *, later: Later = "set") -> xr.Dataset:
    """The paths of a circuit from `chain_circuit`, as places of a chain that heads connect.

    The batch says what mechanisms such as `previous token` connect. When a path is taken out, later heads attend as
    their mechanisms say (`set`), or as they have learned to (`learned`).

    Returns:
        Over (layer, head, place, to, skill) `rise`, of the squared error, without the mechanism that connects the
        places, the others in place; NaN where no needed mechanism does.
    """
    n, cfg = n_places(batch), model.cfg
    skills = circuit.joint.skill.values.tolist()
    rise = np.full((cfg.n_layers, cfg.n_heads, n, n, len(skills)), np.nan)
    table = circuit.paths
    for number in range(0 if table is None else table.sizes["path"]):
        assert table is not None
        at = table.isel(path=number).sel(later=later)
        head = (int(at.layer), int(at["head"]))
        mechanism = circuit.mechanisms[head]
        (part,) = [part for part in mechanism.parts or (mechanism,) if part.name == at.part.item()]
        connected = between_places(part.pattern(batch)[:, None], batch)[0].numpy() >= LEVEL
        np.fill_diagonal(connected, False)
        rise[head][connected] = at.rise.sel(skill=skills).values
    dims = ("layer", "head", "place", "to", "skill")
    labels = (range(cfg.n_layers), range(cfg.n_heads), range(n), range(n), skills)
    coords = {name: list(each) for name, each in zip(dims, labels, strict=True)}
    return xr.Dataset({"rise": (dims, rise)}, coords=coords, attrs={"unit": "squared error", "n": len(batch)})


def surviving(trajectory: xr.Dataset, rise: xr.DataArray) -> xr.DataArray:
    """Attention along the paths of circuits, from a trajectory over step, and seed, and the `rise` of one skill.

    Only paths in some circuit are kept, over (path, step), and seed: NaN where the path is in no circuit of that seed.
    """
    needed = rise.notnull().any(("layer", "head"))
    ends = product(rise.place.values.tolist(), rise.to.values.tolist())
    paths = [(place, to) for place, to in ends if bool(needed.sel(place=place, to=to).any())]
    names = [path_name(*path) for path in paths]
    if missing := [name for name in names if name not in trajectory]:
        raise InputError(
            f"the trajectory has no attention along {', '.join(missing)}; `mnemoscope evaluate --checkpoints` takes it"
        )
    if not paths:
        return xr.DataArray(np.zeros((0, trajectory.sizes["step"])), dims=("path", "step"), coords={"path": []})
    courses = [
        trajectory[name].where(needed.sel(place=place, to=to, drop=True))
        for name, (place, to) in zip(names, paths, strict=True)
    ]
    places, tos = zip(*paths, strict=True)
    found = xr.concat(courses, xr.DataArray(names, dims="path", name="path")).rename("attention")
    return found.assign_coords(place=("path", list(places)), to=("path", list(tos)))


def first_true_step(holds: xr.DataArray) -> xr.DataArray:
    """The first step at which something holds; NaN where it never does."""
    return holds.step.where(holds).min("step")


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
