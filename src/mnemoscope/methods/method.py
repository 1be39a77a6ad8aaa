"""Methods of circuit discovery by name: each gives every edge of a model a score.

A method is one function of a setting (model, pairs, metric) and a seed. Its scores are an array along `edge`: how much
an edge adds to the metric, negative where it works against the answer. A method that makes a choice of its own says so
by truth values `chosen` along `edge`, a coordinate; of all others the fewest edges of the largest scores are taken that
reach `TARGET` of the whole model's effect. The first line of the function's docstring describes it in tables. A method
that a model does not suit raises InputError; it is left out there, with the reason.
"""

from collections.abc import Callable

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from mnemoscope.analyses.discovery.searches import edge_order
from mnemoscope.analyses.discovery.setting import LARGE, ROUNDING, TARGET, Setting, align_to_edges, circuit_masks
from mnemoscope.core.errors import InputError
from mnemoscope.core.guests import Registry

Method = Callable[[Setting, int], xr.DataArray]
"""From a setting and a seed to a score per edge."""

MOST_EDGES = 1200
"""Edges of a model for methods whose time grows with their square."""

METHODS: Registry[Method] = Registry("method", "methods")
"""Methods by name; guests add theirs in a module `methods`."""


def register(name: str, words: str, method: Method) -> Method:
    """Add a method that has no docstring of its own, with a line that describes it."""
    method.__doc__ = words
    return METHODS.add(name, method)


def check_size(setting: Setting, what: str) -> None:
    """Refuse a model with more than `MOST_EDGES` edges, for a method that runs circuits for every edge."""
    if (n_edges := len(setting.edges)) > MOST_EDGES:
        raise InputError(
            f"{what} takes models with at most {MOST_EDGES:,} edges, since its time grows with their square; got "
            f"{n_edges:,}; take edge-patching, which runs each edge once, or eap-ig-inputs"
        )


def describe(name: str) -> str:
    """The first line of the docstring of a method."""
    return (METHODS.get(name).__doc__ or "").strip().split("\n")[0].rstrip(".")


def score_edges(name: str, setting: Setting, seed: int = 0) -> xr.DataArray:
    """The scores of a registered method along `edge`, in the order of the model's edges, with `chosen` beside them.

    Raises InputError where there is no such method, it refuses the model, or its result is not one number per edge.

    >>> setting = ms.analyses.Setting(model=model, pairs=pairs)
    >>> found = ms.methods.score_edges("eap", setting)
    >>> found.dims, int(found.chosen.sum()) > 0
    (('edge',), True)
    """
    given = METHODS.get(name)(setting, seed)
    scores = align_to_edges(setting.edges, given)
    if scores.dims != ("edge",) or not np.isfinite(scores.to_numpy()).all():
        raise InputError(f"method {name} must give one finite number per edge; got {scores.dims}, {given.to_numpy()}")
    if "chosen" in scores.coords:
        chosen = circuit_masks(setting.edges, scores["chosen"])
    else:
        chosen = _fewest_edges(setting, scores.to_numpy())
    return scores.astype(float).assign_coords(chosen=("edge", chosen)).rename("score")


def _fewest_edges(setting: Setting, scores: Float[np.ndarray, " edge"]) -> Bool[np.ndarray, " edge"]:
    """The fewest edges of the largest scores that reach the target, pruned; none where no number of them does.

    Sizes that grow by about a fifth are run, then all up to the first that is enough: the fewest, unless faithfulness
    falls in between. On graphs of more than `LARGE` edges it stays with the first sizes.
    """
    rank = np.argsort(edge_order(setting.paths, scores, signed=False, connected=False))
    n_edges = len(rank)
    growing = np.unique(np.geomspace(1, n_edges, 4 * n_edges.bit_length() + 1).round().astype(int))
    if (high := _first_enough(setting, rank, growing)) is None:
        return np.zeros(n_edges, dtype=bool)
    if n_edges > LARGE:
        return setting.prune(rank < high)
    low = max((size for size in growing if size < high), default=0)
    return setting.prune(rank < (_first_enough(setting, rank, np.arange(low + 1, high + 1)) or high))


def _first_enough(setting: Setting, rank: Int[np.ndarray, " edge"], sizes: Int[np.ndarray, " size"]) -> int | None:
    """The first of some numbers of edges that reaches the target; None: none does."""
    enough = setting.faithfulness(rank < sizes[:, None]) >= TARGET - ROUNDING
    return int(sizes[enough.argmax()]) if enough.any() else None
