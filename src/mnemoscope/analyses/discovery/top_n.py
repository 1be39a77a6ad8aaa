"""The edges of the highest score: the smallest number of them that is faithful enough.

Edges are ranked by any attribution, by size or with their sign, equal ones in the order of the readers. Circuits of 0,
1, 2, ... edges are all run, because faithfulness need not rise with every edge; the smallest that reaches the target
is taken. Syed et al. 2023, "Attribution patching outperforms automated circuit discovery"; Hanna et al. 2024.

`connected` picks as EAP-IG's `apply_greedy` does: from the logits backwards, always the highest score among the edges
that lead to a part that is in the circuit already. Without it the choice is that of `apply_topn`. As there, what is
returned is the pruned form, which may have fewer edges than were taken.

It shows how well a ranking finds a circuit. It does not show that the circuit is the smallest: edges that do the same
get similar scores and come in together, and edges that only work together may get none.
"""

import heapq

import numpy as np
import xarray as xr
from jaxtyping import Float

from mnemoscope.analyses.discovery.circuit import along
from mnemoscope.analyses.discovery.setting import ROUNDING, TARGET, Setting
from mnemoscope.core.edge import LOGITS, Edge, coordinates
from mnemoscope.core.errors import InputError, in_range


def top_n(
    setting: Setting,
    scores: xr.DataArray,
    *,
    target: float = TARGET,
    signed: bool = False,
    connected: bool = False,
) -> xr.Dataset:
    """The smallest number of edges of the highest score that reaches a faithfulness.

    Args:
        setting: What circuits are measured on.
        scores: Over edge; what an edge adds to the metric counts as positive where `signed` is set.
        target: Faithfulness to be reached.
        signed: Whether to rank by the score itself instead of its size.
        connected: Whether edges have to lead to what is in the circuit already.

    Returns:
        `circuit` over edge, and its `n_edges`; `faithfulness`, its `error` and `n_pruned`, the edges that matter, over
        `taken`, the number of edges that were taken; `score` and `rank` (from 1) over edge.

    Raises:
        InputError: Scores are not one a edge of the model, or NaN; the target is out of range; or as `Setting.span`.
    """
    in_range("target", target, 0, 1)
    strength = along(setting.edges, scores).to_numpy()
    ranked = order(setting.edges, strength, signed=signed, connected=connected)
    rank = np.empty(len(ranked), dtype=int)
    rank[ranked] = np.arange(1, len(ranked) + 1)
    masks = rank <= np.arange(len(ranked) + 1)[:, None]
    _ = setting.span
    values, kept = setting.values(masks), setting.prune(masks)
    found = setting.share(values)
    enough = found >= target - ROUNDING
    chosen = kept[enough.argmax()] if enough.any() else np.zeros(len(ranked), dtype=bool)
    return xr.Dataset(
        {
            "circuit": ("edge", chosen),
            "n_edges": int(chosen.sum()),
            "faithfulness": ("taken", found),
            "error": ("taken", setting.error(values)),
            "n_pruned": ("taken", kept.sum(1)),
            "score": ("edge", strength),
            "rank": ("edge", rank),
        },
        coords={**coordinates(setting.edges), "taken": range(len(masks))},
        attrs={
            **setting.attrs,
            "method": f"top n by {scores.name or 'score'}" + (", connected" if connected else ""),
            "ranked_by": "score" if signed else "size of the score",
            "target": target,
        },
    )


def order(edges: tuple[Edge, ...], scores: Float[np.ndarray, " edge"], *, signed: bool, connected: bool) -> list[int]:
    """Numbers of the edges, in the order in which they are taken.

    Raises:
        InputError: A score is NaN, or there is more than one an edge.
    """
    if scores.ndim != 1 or np.isnan(scores).any():
        raise InputError(f"scores must be one number an edge; got shape {scores.shape}, {np.isnan(scores).sum()} NaN")
    strength = scores if signed else abs(scores)
    if not connected:
        return np.argsort(-strength, kind="stable").tolist()
    into: dict[object, list[tuple[float, int]]] = {}
    for number, edge in enumerate(edges):
        into.setdefault(edge.reader, []).append((-float(strength[number]), number))
    ranked, open_ = [], into.pop(LOGITS)
    heapq.heapify(open_)
    while open_:
        _, number = heapq.heappop(open_)
        ranked.append(number)
        for entry in into.pop(edges[number].writer, ()):
            heapq.heappush(open_, entry)
    return ranked
