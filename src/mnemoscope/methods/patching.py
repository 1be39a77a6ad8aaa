"""Methods that patch activations or edges between a clean and a corrupted run, exactly or to first order.

*Noising* puts corrupted values into the clean run, *denoising* clean ones into the corrupted run. The score of an edge
is what the clean value adds to the metric, mean over prompts. Methods that look at parts (heads, MLPs) give an edge the
score of the weaker of its two ends; input and logits count as the whole difference between the two runs.

Sources: activation patching, Vig et al. 2020, Meng et al. 2022; attribution patching, Nanda 2023; path patching of
single edges, Goldowsky-Dill et al. 2023; EAP, Syed et al. 2023; EAP-IG, Hanna et al. 2024; information flow routes,
Ferrando & Voita 2024. It shows effects of one part or edge at a time: parts that stand in for each other get little.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr

from mnemoscope.analyses.discovery.setting import Part, Setting, label_edges
from mnemoscope.analyses.estimates import attribute_edges, estimate, integrate_edges
from mnemoscope.analyses.patching import moved, patch, patch_edges
from mnemoscope.core.dictionary_places import model_dictionaries
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import Site, reading_depth
from mnemoscope.interventions.edge_states import EdgeReplacement, record_writers
from mnemoscope.interventions.graph import parts_of_reader, writers
from mnemoscope.interventions.measurement import Direction
from mnemoscope.methods.method import METHODS, register


def added(result: xr.Dataset) -> xr.DataArray:
    """The addition of clean values to the metric by cell, mean over prompts; results of one metric and direction."""
    at = result.isel(metric=0, direction=0)
    return moved(at).mean("prompt") * (1 if at.higher_is == "better" else -1)


def edges_patched(
    measure: Callable[..., xr.Dataset], setting: Setting, seed: int, *, direction: Direction, **options: Any
) -> xr.DataArray:
    """Scores of an analysis of edges, such as `patch_edges`; `options` are those of the analysis."""
    what: Any = {"metrics": (setting.metric,), "directions": (direction,), "embeddings": setting.embeddings}
    if measure is patch_edges:
        setting.check_time(len(setting.edges), "edge patching", "take eap-ig-inputs, which estimates it")
    found = added(measure(setting.model, setting.pairs, seed=seed, **what, **options))
    return label_edges(setting.edges, found.to_numpy())


def parts_patched(
    measure: Callable[..., xr.Dataset], setting: Setting, seed: int, *, direction: Direction
) -> xr.DataArray:
    """Scores of an analysis of activations, such as `patch`, from those of heads and MLPs."""
    if model_dictionaries(setting.hooked):
        raise InputError(
            "it scores heads and MLPs, and this model has features in the place of MLPs; take edge-patching"
        )
    what: Any = {"metrics": (setting.metric,), "directions": (direction,), "seed": seed}
    heads = added(measure(setting.model, setting.pairs, kind="z", over=("layer", "head"), **what)).to_numpy()
    mlps = None
    if not setting.hooked.cfg.attn_only:
        mlps = added(measure(setting.model, setting.pairs, kind="mlp_out", over=("layer",), **what)).to_numpy()
    whole = setting.ends[0].mean() - setting.ends[1].mean()

    def of_part(part: Part) -> float:
        if not isinstance(part, Site) or part.kind not in ("z", "mlp_out"):
            return float(whole)
        return float(heads[part.layer, part.head] if part.kind == "z" else mlps[part.layer])  # pyright: ignore

    def of_edge(number: int) -> float:
        edge = setting.edges[number]
        readers = [of_part(part) for part in parts_of_reader(setting.hooked, edge.reader)]
        return min(of_part(edge.writer), max(readers, key=abs), key=abs)

    return label_edges(setting.edges, np.array([of_edge(number) for number in range(len(setting.edges))]))


def edges_removed(setting: Setting, seed: int, *, replacement: EdgeReplacement) -> xr.DataArray:
    """Scores by what is lost when an edge alone carries another value."""
    at = replace(setting, replacement=replacement)
    found = at.values(~np.eye(len(at.edges), dtype=bool)).mean(1)
    return label_edges(at.edges, (at.ends[0].mean() - found) * (1 if at.metric.higher_is == "better" else -1))


def information_flow(setting: Setting, seed: int) -> xr.DataArray:
    """Information flow: how near what a writer adds is to the sum that its reader reads, on clean prompts alone."""
    model, batch = setting.hooked, setting.pairs.clean
    run = record_writers(model, batch.inputs, torch.empty(0, dtype=torch.long))
    outputs = dict(zip(writers(model, embeddings="apart"), run.outputs, strict=True))
    embedded = torch.stack([value for site, value in outputs.items() if reading_depth(site) < 0]).sum(0)
    sources: dict[str, list[int]] = {}
    for number, edge in enumerate(setting.edges):
        sources.setdefault(f"{edge.reader} {edge.through}", []).append(number)
    scores = np.zeros(len(setting.edges))
    for numbers in sources.values():
        terms = torch.stack([outputs.get(setting.edges[n].writer, embedded) for n in numbers])
        total = terms.sum(0)
        near = (total.abs().sum(-1) - (total - terms).abs().sum(-1)).clamp(min=0)
        share = near / near.sum(0).clamp(min=1e-12)
        scores[numbers] = share.mean((1, 2)).cpu().numpy()
    return label_edges(setting.edges, scores)


METHODS.add("information-flow", information_flow)
for _name, _words, _function, _options in (
    (
        "activation-patching",
        "Activation patching: heads and MLPs of the corrupted run in the clean one, exactly",
        partial(parts_patched, patch),
        {"direction": "noising"},
    ),
    (
        "activation-patching-denoising",
        "Activation patching: heads and MLPs of the clean run in the corrupted one, exactly",
        partial(parts_patched, patch),
        {"direction": "denoising"},
    ),
    (
        "attribution-patching",
        "Attribution patching: activation patching to first order, by the gradient in the clean run",
        partial(parts_patched, estimate),
        {"direction": "noising"},
    ),
    (
        "eap",
        "Edge attribution patching: edge patching to first order, by the gradient in the clean run",
        partial(edges_patched, attribute_edges),
        {"direction": "noising"},
    ),
    (
        "eap-denoising",
        "Edge attribution patching by the gradient in the corrupted run",
        partial(edges_patched, attribute_edges),
        {"direction": "denoising"},
    ),
    (
        "eap-ig-inputs",
        "EAP by the gradient averaged between corrupted and clean input embeddings",
        partial(edges_patched, integrate_edges, along="inputs"),
        {"direction": "noising"},
    ),
    (
        "eap-ig-activations",
        "EAP by the gradient averaged between corrupted and clean activations, one after the other",
        partial(edges_patched, integrate_edges, along="activations"),
        {"direction": "noising"},
    ),
    (
        "edge-patching",
        "Exact edge patching: each edge by itself carries the corrupted value in the clean run",
        partial(edges_patched, patch_edges),
        {"direction": "noising"},
    ),
    (
        "edge-patching-denoising",
        "Exact edge patching: each edge by itself carries the clean value in the corrupted run",
        partial(edges_patched, patch_edges),
        {"direction": "denoising"},
    ),
    (
        "edge-ablation-mean",
        "Each edge by itself carries its mean over prompts",
        edges_removed,
        {"replacement": "mean"},
    ),
    ("edge-ablation-zero", "Each edge by itself carries nothing", edges_removed, {"replacement": "zero"}),
):
    register(_name, _words, partial(_function, **_options))
