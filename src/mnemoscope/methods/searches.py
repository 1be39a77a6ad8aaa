"""Methods that run whole circuits: greedy pruning, ACDC, every set of edges, Shapley values, and random scores.

Faithfulness of a circuit is that of `analyses.discovery`. *Greedy* and *ACDC* visit every edge once (`greedy`); ACDC
bounds the divergence of predictions (Conmy et al. 2023), and an edge's score is the largest of some thresholds at which
it stays. *Minimal circuits* are counted where a model has few edges: the score is the share of minimal circuits
with the edge. *Edge Shapley* is the mean gain of faithfulness when an edge joins the edges before it in a random order,
with every order taken backwards too. None shows which of several sufficient circuits the model uses.
"""

from dataclasses import replace

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float

from mnemoscope.analyses.discovery.searches import exhaustive_search, greedy
from mnemoscope.analyses.discovery.setting import TARGET, Setting, label_edges
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import KL
from mnemoscope.core.seeding import generator
from mnemoscope.methods.method import METHODS, check_size

THRESHOLDS = (0.001, 0.01, 0.1, 1.0)
"""Thresholds of ACDC, in nats."""
CHOSEN_AT = 0.01
"""The threshold of ACDC's own choice."""
N_ORDERS = 2
"""Random orders of edges for Shapley values; each counts backwards too."""


def random_scores(setting: Setting, seed: int) -> xr.DataArray:
    """Random numbers, the control: what a meaningless ranking gives."""
    drawn = torch.rand(len(setting.edges), generator=generator(seed, "random scores"), dtype=torch.float64)
    return label_edges(setting.edges, drawn.numpy())


def greedy_pruning(setting: Setting, seed: int) -> xr.DataArray:
    """Greedy pruning from the logits backwards, as long as .9 of the effect is kept."""
    found = greedy(setting, target=TARGET)
    worse, kept = found.worse.to_numpy(), found.circuit.to_numpy()
    scores = kept + worse / (1 + 2 * abs(worse).max())  # kept edges lie above all that were taken out
    return label_edges(setting.edges, scores).assign_coords(chosen=("edge", kept))


def acdc(setting: Setting, seed: int) -> xr.DataArray:
    """ACDC: greedy pruning by thresholds on the divergence of predictions."""
    if setting.pairs.clean.has_vectors:
        raise InputError("ACDC bounds the divergence of predicted tokens, and this model gives vectors; take greedy")
    at = replace(setting, metric=KL)
    scores, chosen = np.zeros(len(at.edges)), np.zeros(len(at.edges), dtype=bool)
    for rank, threshold in enumerate(THRESHOLDS, 1):
        found = greedy(at, threshold=threshold)
        kept, worse = found.circuit.to_numpy(), found.worse.to_numpy()
        scores = np.where(kept, rank, scores + worse / (1 + 2 * abs(worse).max()) / len(THRESHOLDS))
        chosen = kept if threshold == CHOSEN_AT else chosen
    return label_edges(setting.edges, scores).assign_coords(chosen=("edge", chosen))


def minimal_circuits(setting: Setting, seed: int) -> xr.DataArray:
    """Every set of edges: the share of minimal circuits that hold the edge, of models with at most 16 edges."""
    found = exhaustive_search(setting, target=TARGET)
    minimal = found.minimal.to_numpy()
    if not len(minimal):
        raise InputError(f"no circuit reaches {TARGET:g} of the effect")
    return label_edges(setting.edges, minimal.mean(0)).assign_coords(chosen=("edge", minimal[0]))


def edge_shapley(setting: Setting, seed: int) -> xr.DataArray:
    """Edge Shapley values: the mean gain of the metric when an edge joins others in a random order."""
    check_size(setting, "edge-shapley")
    n_edges, gains = len(setting.edges), []
    sign = 1 if setting.metric.higher_is == "better" else -1
    for number in range(N_ORDERS):
        drawn = torch.randperm(n_edges, generator=generator(seed, "orders", number)).numpy()
        gains += [_gains(setting, order) for order in (drawn, drawn[::-1])]
    return label_edges(setting.edges, sign * np.mean(gains, 0))


def _gains(setting: Setting, order: np.ndarray) -> Float[np.ndarray, " edge"]:
    """The gain of the metric by every edge as edges come in an order."""
    place = np.argsort(order)
    values = setting.values(place < np.arange(len(order) + 1)[:, None]).mean(1)
    return np.diff(values)[place]


for _name, _method in (
    ("random", random_scores),
    ("greedy", greedy_pruning),
    ("acdc", acdc),
    ("minimal-circuits", minimal_circuits),
    ("edge-shapley", edge_shapley),
):
    METHODS.add(_name, _method)
