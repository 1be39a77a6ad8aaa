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
from jaxtyping import Bool, Float

from mnemoscope.analyses.discovery.searches import edge_order
from mnemoscope.analyses.discovery.setting import ROUNDING, TARGET, Setting, align_to_edges, circuit_masks
from mnemoscope.core.errors import InputError
from mnemoscope.core.guests import Registry

Method = Callable[[Setting, int], xr.DataArray]
"""From a setting and a seed to a score per edge."""

METHODS: Registry[Method] = Registry("method", "methods")
"""Methods by name; guests add theirs in a module `methods`."""


def register(name: str, words: str, method: Method) -> Method:
    """Add a method that has no docstring of its own, with a line that describes it."""
    method.__doc__ = words
    return METHODS.add(name, method)


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
    falls in between.
    """
    rank = np.argsort(edge_order(setting.paths, scores, signed=False, connected=False))
    sizes = np.unique(np.geomspace(1, len(rank), 4 * len(rank).bit_length() + 1).round().astype(int))
    for _ in range(2):
        masks = rank < sizes[:, None]
        enough = setting.faithfulness(masks) >= TARGET - ROUNDING
        if not enough.any():
            return np.zeros(len(rank), dtype=bool)
        first = int(enough.argmax())
        sizes = np.arange(sizes[first - 1] + 1 if first else 1, sizes[first] + 1)
    return setting.prune(masks[first])
