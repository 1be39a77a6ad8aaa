"""Searches by name, so that circuits of one search can be compared with those of another.

`greedy` takes edges out while the target holds. The others rank edges once and take the fewest that reach the target:
by the effect of taking out one edge, or by its estimate from gradients in the unpatched run (EAP) or between the runs
(EAP-IG). An estimate needs a metric with a gradient, and is of patches: it says nothing about means or zeros.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Bool

from mnemoscope.analyses.discovery.searches import greedy, top_n
from mnemoscope.analyses.discovery.setting import Setting, label_edges
from mnemoscope.analyses.estimates import attribute_edges, integrate_edges
from mnemoscope.analyses.patching import moved
from mnemoscope.core.metrics import ACCURACY

GREEDY, BY_EFFECT, BY_EAP, BY_EAP_IG = "greedy", "top n by effect", "top n by EAP", "top n by EAP-IG"
_MOST_SIZES = 100
"""Circuits that `top_n` runs on a large graph, at most."""


def _any_setting(setting: Setting) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class CircuitSearch:
    """A search for circuits.

    Attributes:
        rank: Scores of edges, of which the highest are taken (`top_n`). None: greedy pruning.
        fits: Tells the settings that the search can be made on.
        runs_each_edge: Whether it runs a circuit for every edge, which takes long on a large graph.

    >>> ms.analyses.CIRCUIT_SEARCHES["by EAP"] = ms.analyses.CircuitSearch(rank=ms.analyses.rank_by_eap)
    >>> ms.analyses.CIRCUIT_SEARCHES.pop("by EAP").runs_each_edge
    False
    """

    rank: Callable[[Setting], xr.DataArray] | None
    fits: Callable[[Setting], bool] = _any_setting
    runs_each_edge: bool = False

    def n_circuits(self, n_edges: int) -> int:
        """The number of circuits that the search runs on a large graph, at most."""
        return n_edges * self.runs_each_edge + _MOST_SIZES * (self.rank is not None)

    def find(self, setting: Setting, targets: Sequence[float]) -> Bool[np.ndarray, "target edge"]:
        """A circuit for each target; empty where none is found, or the metric tells nothing apart."""
        if not np.isfinite(setting.span):
            return np.zeros((len(targets), len(setting.edges)), dtype=bool)
        if self.rank is None:
            return np.stack([greedy(setting, target=target).circuit.to_numpy() for target in targets])
        scores = self.rank(setting)
        return np.stack([top_n(setting, scores, target=target).circuit.to_numpy() for target in targets])


def removal_effects(setting: Setting) -> xr.DataArray:
    """The faithfulness that the model loses without each edge, over edge.

    >>> setting = ms.analyses.Setting(model=model, pairs=pairs)
    >>> ms.analyses.removal_effects(setting).dims
    ('edge',)
    """
    return label_edges(setting.edges, 1 - setting.faithfulness(~np.eye(len(setting.edges), dtype=bool)))


def rank_by_eap(setting: Setting) -> xr.DataArray:
    """The addition of each edge to the metric, by EAP, over edge.

    >>> setting = ms.analyses.Setting(model=model, pairs=pairs)
    >>> ms.analyses.rank_by_eap(setting).dims
    ('edge',)
    """
    return _mean_loss(attribute_edges(setting.model, setting.pairs, **_question(setting)))


def rank_by_eap_ig(setting: Setting) -> xr.DataArray:
    """The addition of each edge to the metric, by EAP-IG, over edge.

    >>> setting = ms.analyses.Setting(model=model, pairs=pairs)
    >>> ms.analyses.rank_by_eap_ig(setting).dims
    ('edge',)
    """
    return _mean_loss(integrate_edges(setting.model, setting.pairs, **_question(setting)))


def _question(setting: Setting) -> dict:
    return {"embeddings": setting.embeddings, "metrics": (setting.metric,), "directions": ("noising",)}


def _mean_loss(found: xr.Dataset) -> xr.DataArray:
    return moved(found).mean("prompt").squeeze(drop=True)


def estimates_fit(setting: Setting) -> bool:
    """True where edges are patched and the metric has a gradient."""
    return setting.replacement == "patch" and setting.metric != ACCURACY


def _clean_gradient_fits(setting: Setting) -> bool:
    """A divergence from the clean run has no gradient there."""
    return estimates_fit(setting) and not setting.metric.against_clean


CIRCUIT_SEARCHES: dict[str, CircuitSearch] = {
    GREEDY: CircuitSearch(rank=None, runs_each_edge=True),
    BY_EFFECT: CircuitSearch(rank=removal_effects, runs_each_edge=True),
    BY_EAP: CircuitSearch(rank=rank_by_eap, fits=_clean_gradient_fits),
    BY_EAP_IG: CircuitSearch(rank=rank_by_eap_ig, fits=estimates_fit),
}
"""Searches by name; one of your own is an entry more."""
