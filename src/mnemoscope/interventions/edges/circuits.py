"""The metric of circuits on pairs of prompts.

Plain HookedTransformers are run as `shared` does, which computes once what circuits have in common; all others cell by
cell through hooks (`sweep`). The numbers are the same.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.core.edge import Edge
from mnemoscope.core.metrics import Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import Site
from mnemoscope.interventions.edges import shared
from mnemoscope.interventions.edges.graph import writers
from mnemoscope.interventions.edges.states import State
from mnemoscope.interventions.edges.sweep import CHUNK_BYTES, Replacement, mean_outputs, sweep_states
from mnemoscope.interventions.edges.written import written
from mnemoscope.interventions.patching.memory import prompts_at_once
from mnemoscope.interventions.patching.packed import packed, unsupported
from mnemoscope.interventions.patching.reading import Reader


@torch.no_grad()
def measured(
    model: HookedModel,
    pairs: PromptPairs,
    edges: Sequence[Edge],
    masks: Bool[np.ndarray, "circuit edge"],
    *,
    metric: Metric,
    replacement: Replacement,
    max_bytes: int,
) -> Float[np.ndarray, "circuit prompt"]:
    """The metric of circuits on every prompt.

    Args:
        model: A HookedTransformer whose parts add up in the residual stream.
        pairs: Clean and corrupted prompts.
        edges: All edges of the model.
        masks: Circuits.
        metric: The value of a prompt is the mean over its scored positions.
        replacement: What edges outside a circuit carry.
        max_bytes: Bound on what is allocated on the way, weights and result excepted.

    Raises:
        InputError: The model has no such graph, its logits hold NaN, the metric measures no prediction, or the budget
            is too small.
    """
    if unsupported(model) is None:
        return _shared(model, pairs, edges, masks, metric, replacement, max_bytes)
    states = torch.from_numpy(np.where(masks, int(State.LIVE), int(State.PATCHED)))
    what = {"metrics": (metric,), "directions": ("noising",), "replacement": replacement, "max_bytes": max_bytes}
    return sweep_states(model, pairs, edges, states, **what).value[0, 0].numpy()


def _shared(
    model: HookedModel,
    pairs: PromptPairs,
    edges: Sequence[Edge],
    masks: Bool[np.ndarray, "circuit edge"],
    metric: Metric,
    replacement: Replacement,
    max_bytes: int,
) -> Float[np.ndarray, "circuit prompt"]:
    weights, (found, variant) = packed(model), shared.parts(edges, masks)
    read = pairs.scored.any(0).nonzero()[:, 0].to(weights.w_u.device)
    n_pos = pairs.clean.inputs.shape[1]
    need = shared.numbers(weights, found, n_pos, len(read)) * weights.w_u.element_size()
    if need > max_bytes // 2 and len(masks) > 1:
        halves = (masks[: len(masks) // 2], masks[len(masks) // 2 :])
        return np.concatenate([_shared(model, pairs, edges, half, metric, replacement, max_bytes) for half in halves])
    kept = 4 * len({edge.writer for edge in edges}) * n_pos * weights.w_u.nbytes // weights.w_u.shape[1]
    n_prompts = prompts_at_once(len(pairs), at_work=need, kept=kept, room=max_bytes, target=CHUNK_BYTES)
    rows = torch.arange(len(pairs)).split(n_prompts)
    mean = mean_outputs(model, pairs.corrupted, rows) if replacement == "mean" else None
    values = []
    for some in rows:
        part = pairs.select(some)
        clean, corrupted = (written(model, side.inputs, read, frozenset()) for side in (part.clean, part.corrupted))
        reader = Reader.of(part, read, (metric,), clean.logits)
        reader.check(generator(0, "metrics"))
        sites = {edge.writer for edge in edges}
        here = {site: value for site, value in _by_site(model, clean.outputs, sites).items() if site.kind not in _PARTS}
        outside = corrupted.outputs if mean is None else mean
        there = _by_site(model, torch.zeros_like(outside) if replacement == "zero" else outside, sites)
        logits = shared.logits(weights, found, here, there, read)
        values.append(reader.patched(logits, 0, reader.values(clean.logits[None])[:, 0])[0])
    return torch.cat(values, 1).numpy()[variant]


_PARTS = ("z", "mlp_out")


def _by_site(
    model: HookedModel, outputs: Float[Tensor, "prompt pos writer d_model"], sites: set[Site]
) -> dict[Site, Float[Tensor, "prompt pos d_model"]]:
    """What every writer of a graph wrote; all embeddings together if the graph has them so."""
    found = dict(zip(writers(model, embeddings="apart"), outputs.unbind(2), strict=True))
    together = torch.stack([value for site, value in found.items() if site.kind not in _PARTS]).sum(0)
    return {site: together if site.kind == "resid_pre" else found[site] for site in sites}
