"""Greedy pruning: edges are taken out one after the other, from the logits backwards, if little is lost.

The edges are visited once, those into the last reader first, and of a reader's those from the last writer first. With
C what is left, an edge e is taken out

- with a `threshold` if the metric of C without e is worse than that of C by less than it; with KL as metric this is
  the rule of ACDC, KL(C - e) - KL(C) < threshold (Conmy et al. 2023, "Towards automated circuit discovery for
  mechanistic interpretability");
- with a `target` if the faithfulness of C without e is still at least that.

The result is the pruned form of what is left. The original and auto-circuit's `acdc_prune_scores` apply the first rule
in an order of their own (there by the reader's layer alone, ties in no stated order); with another order another
circuit may be found. They do not prune at the end.

To be quick, several decisions are run at once on the guess that they all turn out like the last one; what follows a
wrong guess is run again. The result is that of one decision at a time, up to rounding where a decision is a tie.

It shows a circuit from which these removals, in this order, could be made. It does not show that it is the smallest,
nor, with a threshold, how faithful it is: small losses add up. What stands in for a removed edge is kept.
"""

from collections.abc import Callable

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from mnemoscope.analyses.discovery.setting import ROUNDING, Setting
from mnemoscope.core.edge import coordinates
from mnemoscope.core.errors import InputError, in_range

_WINDOW = (8, 64)
"""Decisions run at once: at least and at most."""

Accepts = Callable[[float, float], bool]
"""Whether the mean metric of the present circuit and that without an edge let it be taken out."""


def greedy(setting: Setting, *, threshold: float | None = None, target: float | None = None) -> xr.Dataset:
    """Prune a model to a circuit.

    Args:
        setting: What circuits are measured on.
        threshold: By how much an edge may worsen the metric, in its unit; above 0.
        target: Faithfulness to be kept. One of the two must be given.

    Returns:
        `circuit` over edge; `worse` over edge: by how much its removal made the metric worse when it was tried, 0
        where it could not matter any more; `faithfulness` and `n_edges` of the circuit.

    Raises:
        InputError: Not one of threshold and target is given, or it is out of range; or as `Setting.span`.
    """
    sign = 1 if setting.metric.higher_is == "better" else -1
    kept, worse = _visited(setting, _rule(setting, sign, threshold, target), sign)
    kept = setting.prune(kept)
    return xr.Dataset(
        {
            "circuit": ("edge", kept),
            "worse": ("edge", worse),
            "faithfulness": setting.faithfulness(kept[None])[0],
            "n_edges": int(kept.sum()),
        },
        coords=coordinates(setting.edges),
        attrs={
            **setting.attrs,
            "method": "greedy pruning from the logits backwards",
            **({"threshold": threshold} if target is None else {"target": target}),
        },
    )


def _rule(setting: Setting, sign: int, threshold: float | None, target: float | None) -> Accepts:
    if (threshold is None) == (target is None):
        raise InputError(f"greedy needs one of threshold and target; got threshold {threshold} and target {target}")
    span = setting.span
    if threshold is not None:
        if not threshold > 0:
            raise InputError(f"threshold must be above 0, in the unit of the metric; got {threshold!r}")
        return lambda now, without: sign * (now - without) < threshold
    assert target is not None
    in_range("target", target, 0, 1)
    empty = float(setting.ends[1].mean())
    return lambda _, without: (without - empty) / span >= target - ROUNDING


def _visited(
    setting: Setting, accepts: Accepts, sign: int
) -> tuple[Bool[np.ndarray, " edge"], Float[np.ndarray, " edge"]]:
    """What is left after every edge was visited, and by how much the metric was worse without each."""
    n_edges = len(setting.edges)
    kept, worse = np.ones(n_edges, dtype=bool), np.zeros(n_edges)
    queue, now = list(reversed(range(n_edges))), float(setting.ends[0].mean())
    guess, window = True, _WINDOW[0]
    while queue:
        ahead = queue[:window]
        means = setting.values(_without(kept, ahead, together=guess)).mean(1)
        for edge, without in zip(ahead, means.tolist(), strict=True):
            worse[edge] = sign * (now - without)
            taken = accepts(now, without)
            if taken:
                kept[edge], now = False, without
            queue.remove(edge)
            if taken != guess:
                guess, window = taken, _WINDOW[0]
                break
        else:
            window = min(2 * window, _WINDOW[1])
        kept = setting.prune(kept)
        queue = [edge for edge in queue if kept[edge]]
    return kept, worse


def _without(kept: Bool[np.ndarray, " edge"], ahead: list[int], *, together: bool) -> Bool[np.ndarray, "step edge"]:
    """What is left at each of the next steps, if all edges before are taken out too, or none of them."""
    left = kept[None].repeat(len(ahead), 0)
    for step, edge in enumerate(ahead):
        left[step if not together else slice(step, None), edge] = False
    return left
