"""Whether a circuit is better than random ones of the same size.

Two kinds of random circuits. `uniform`: any set of that many edges, each as likely. `connected`: edges are taken in a
random order until the pruned form of what was taken has that many; if it jumps over the number, it is drawn anew: the
circuit that a meaningless ranking would give. The second is the default. Most small sets of edges hold no path from the
embeddings to the logits, and so are the empty circuit: to beat them is no merit.

Measured are faithfulness; incompleteness, the mean over the knockouts of `completeness`; and minimality, the smallest
loss that taking out a single edge brings. With r of n random circuits at least as good, p = (1 + r) / (1 + n).

A small p shows that the choice of edges matters, for a circuit that was chosen on *other* prompts; chosen on the same
ones it has an advantage that random ones do not. It does not show that no other circuit is as good: of the best
circuits of a size there are few among many, so that random draws rarely meet one.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float

from mnemoscope.analyses.discovery.criteria import N_SETS, faithfulness_without, knockouts, one
from mnemoscope.analyses.discovery.setting import Setting
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.seeding import generator

Draw = Literal["connected", "uniform"]
Measure = Literal["faithfulness", "incompleteness", "minimality"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
_ROUNDS = 100


def against_random(
    setting: Setting,
    circuit: xr.DataArray,
    *,
    n: int = 200,
    draw: Draw = "connected",
    measures: Sequence[Measure] = MEASURES,
    n_sets: int = N_SETS,
    seed: int = 0,
) -> xr.Dataset:
    """A circuit among random ones of the same size.

    Args:
        setting: What they are measured on.
        circuit: Truth values over edge; its pruned form is taken, whose number of edges is the size.
        n: Random circuits, drawn with replacement from the seed's stream `circuits`.
        draw: Which kind of random circuits.
        measures: Incompleteness takes twice as many runs as there are knockouts, of every random circuit.
        n_sets: Random knockouts.
        seed: Of circuits and knockouts.

    Returns:
        Over measure: `value` of the circuit, `p`, and `rank` (1: none is better); `random` with draw.

    Raises:
        InputError: It is no circuit of the model, or none of its edges matters; there are no random circuits of that
            size; or as `Setting.span`.
    """
    in_range("n", n, 1, float("inf"))
    one_of("draw", draw, get_args(Draw))
    for measure in measures:
        one_of("a measure", measure, MEASURES)
    inside = setting.prune(one(setting, circuit))
    if not inside.any():
        raise InputError("no edge of circuit lies on a path to the logits, so that it has no size to compare at")
    masks = np.concatenate([inside[None], random_circuits(setting, int(inside.sum()), n=n, draw=draw, seed=seed)])
    found = np.stack([_measured(setting, masks, measure, n_sets, seed) for measure in measures])
    worse = np.array([-1.0 if measure == "incompleteness" else 1.0 for measure in measures])[:, None] * found
    better, ties = (worse[:, 1:] > worse[:, :1]).sum(1), (worse[:, 1:] >= worse[:, :1]).sum(1)
    known = ~np.isnan(found[:, 0])
    return xr.Dataset(
        {
            "value": ("measure", found[:, 0]),
            "random": (("measure", "draw"), found[:, 1:]),
            "p": ("measure", np.where(known, (1 + ties) / (1 + n), np.nan)),
            "rank": ("measure", np.where(known, 1 + better, np.nan)),
        },
        coords={"measure": list(measures), "draw": range(n)},
        attrs={**setting.attrs, "random_circuits": draw, "n_random": n, "n_edges": int(inside.sum()), "seed": seed},
    )


def random_circuits(
    setting: Setting, size: int, *, n: int, draw: Draw = "connected", seed: int = 0
) -> Bool[np.ndarray, "circuit edge"]:
    """Random circuits with a number of edges.

    Raises:
        InputError: A hundred rounds of draws do not bring together so many of that size.
    """
    stream, found = generator(seed, "circuits", draw), []
    for _ in range(_ROUNDS):
        place = torch.rand(n, len(setting.edges), generator=stream).argsort(1).argsort(1).numpy()
        masks = place < size if draw == "uniform" else _grown(setting, place, size)
        found = [*found, *masks[masks.sum(1) == size]]
        if len(found) >= n:
            return np.array(found[:n])
    raise InputError(f"only {len(found)} of {n} {draw} random circuits with {size} edges were found; draw uniform ones")


def _grown(setting: Setting, place: np.ndarray, size: int) -> Bool[np.ndarray, "circuit edge"]:
    """The pruned form of the shortest beginning of each order whose pruned form has at least some size."""
    low, high = np.zeros(len(place), dtype=int), np.full(len(place), place.shape[1])
    while (low < high).any():  # pruned forms grow with what is taken
        middle = (low + high) // 2
        enough = setting.prune(place < middle[:, None]).sum(1) >= size
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    return setting.prune(place < high[:, None])


def _measured(
    setting: Setting, masks: Bool[np.ndarray, "circuit edge"], measure: Measure, n_sets: int, seed: int
) -> Float[np.ndarray, " circuit"]:
    if measure == "faithfulness":
        return setting.faithfulness(masks)
    if measure == "incompleteness":
        within, without = faithfulness_without(setting, masks, knockouts(masks, n_sets, seed))
        return abs(within - without).mean(1)
    n_edges = int(masks[0].sum())
    single = knockouts(masks, 0, seed)[:, :n_edges]
    left = setting.faithfulness((masks[:, None] & ~single).reshape(-1, masks.shape[1]))
    return setting.faithfulness(masks) - left.reshape(len(masks), n_edges).max(1)
