"""A model's answers when weight matrices are cut at a rank.

A matrix W = sum_i s_i u_i v_i^T, s_1 >= s_2 >= ..., is replaced at run time by its first r terms (part `top`) or by
all but these (part `rest`), r from 0 to full. `top` at full rank and `rest` at rank 0 leave the model exactly as it is;
`top` at rank 0 and `rest` at full rank are the weight zero. Keeping the first terms is the best approximation of that
rank, and as a way to better answers is LASER (Sharma, Ash & Misra 2023); Chen, Bruna & Bietti 2024 cut the MLP of the
last layer. Several matrices are cut at the same rank together; of a weight that has heads each head's matrix is.

*Shows* which predictions need the large, and which the small singular directions of a weight, given the rest of the
model as it is.

*Does not show* what a direction means. Singular values belong to the matrix, not to the data: a large one may never be
read. Biases stay, so a weight of zero is not the absence of the part. Where LayerNorm follows or precedes, its gain is
not folded in.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product, zip_longest
from typing import Literal, get_args

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.analyses.predictions import (
    TARGET_SCORES,
    TokenTargets,
    check_targets,
    places_of_targets,
    sum_scores_at,
    target_counts,
)
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.intervention import LowRank
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.site import ParamSite
from mnemoscope.engine.budget import split_rows_into_passes
from mnemoscope.interventions.reading import logits_at
from mnemoscope.interventions.run import Decompositions, change_weights, weight_at
from mnemoscope.models.attention import run_from_layer

SpectrumPart = Literal["top", "rest"]
"""The largest singular values of a matrix, or the others."""
SPECTRUM_PARTS: tuple[SpectrumPart, ...] = get_args(SpectrumPart)
"""Both parts of a spectrum."""

WeightSets = Mapping[str, Sequence[ParamSite]]
"""Name to the matrices that are cut together."""


@check_arguments
@torch.no_grad()
def truncate(
    model: ModelLike,
    batch: Batch,
    *,
    weights: WeightSets,
    targets: TokenTargets,
    ranks: Sequence[int] | None = None,
    parts: Sequence[SpectrumPart] = SPECTRUM_PARTS,
) -> xr.Dataset:
    """Predictions with weights cut at one rank after the other; one decomposition per weight, and no copy of the model.

    Args:
        model: A run, a subject or any hooked model with TransformerLens's parameters; it is left as found, also
            after an exception.
        batch: Sequences.
        weights: What is cut; `last_mlp`, or any choice.
        targets: The tokens whose probability is followed (`skill_targets` has those of skills).
        ranks: Where; none: every rank from 0 to the largest full one. A matrix of smaller rank is whole (`top`) or
            gone (`rest`) beyond its own.
        parts: Whether the terms before the cut are kept, or those after it.

    Returns:
        `probability`, `log_prob` (nats) and `accuracy` over (weight, part, rank, target), and with `clean_` before
        them over target; `n`, positions per target. `singular_value` over (matrix, index), largest first, and
        `full_rank` over weight; NaN beyond the rank of a matrix.

    Raises:
        InputError: The model is too small for the batch or has no such weight, or an argument is not as described.

    >>> targets = {"answer": (batch.targets, batch.scored)}
    >>> cut = ms.analyses.truncate(model, batch, weights=ms.analyses.last_mlp(model), targets=targets, ranks=[4])
    >>> cut.probability.dims
    ('weight', 'part', 'rank', 'target')
    """
    model = resolve_model(model, batch=batch)
    check_fits(model, batch)
    check_targets(batch, targets)
    for part in parts:
        one_of("part", part, SPECTRUM_PARTS)
    kept = Decompositions()
    values = _spectra(model, weights, kept)
    full = [max(min(weight_at(model, site).shape[-2:]) for site in sites) for sites in weights.values()]
    ranks = range(max(full) + 1) if ranks is None else ranks
    if not ranks or not parts:
        raise InputError("ranks and parts must not be empty; leave them out for all")
    for rank in ranks:
        in_range("rank", rank, 0, max(full))
    cuts = [
        [LowRank(site=site, rank=rank, part=part) for site in sites]
        for sites, part, rank in product(weights.values(), parts, ranks)
    ]
    scores = _scores(model, batch, targets, [[], *cuts], kept)
    shape = (len(weights), len(parts), len(ranks), len(targets))
    dims = ("weight", "part", "rank", "target")
    return xr.Dataset(
        {
            **{name: (dims, scores[1:, :, i].reshape(shape)) for i, name in enumerate(TARGET_SCORES)},
            **{f"clean_{name}": ("target", scores[0, :, i]) for i, name in enumerate(TARGET_SCORES)},
            "n": ("target", to_numpy(target_counts(targets))),
            "full_rank": ("weight", full),
            "singular_value": values,
        },
        coords={"weight": list(weights), "part": list(parts), "rank": list(ranks), "target": list(targets)},
        attrs={"log_prob_unit": "nats", "n": len(batch), "weights": "unprocessed"},
    )


def last_mlp(model: ModelLike) -> dict[str, tuple[ParamSite, ...]]:
    """W_in and W_out of the last layer's MLP, each by itself and both together; InputError if the model has none.

    >>> list(ms.analyses.last_mlp(model))
    ['L0 W_in', 'L0 W_out', 'L0 W_in + L0 W_out']
    """
    model = resolve_model(model)
    if model.cfg.attn_only:
        raise InputError("the model has no MLP; name the weights to cut, such as L0H0 W_O")
    sites = [ParamSite(name=name, layer=model.cfg.n_layers - 1) for name in ("W_in", "W_out")]
    return {str(site): (site,) for site in sites} | {" + ".join(map(str, sites)): tuple(sites)}


def _spectra(model: HookedModel, weights: WeightSets, kept: Decompositions) -> xr.DataArray:
    """Singular values of every matrix, NaN beyond its rank."""
    if not weights or not all(weights.values()):
        raise InputError("weights must name at least one weight, and each at least one matrix; got none")
    values: dict[str, np.ndarray] = {}
    for site in dict.fromkeys(site for sites in weights.values() for site in sites):
        LowRank(site=site, rank=0)  # refuses a bias
        found = to_numpy(kept.factors(site, weight_at(model, site))[1])
        heads = [None] if found.ndim == 1 else range(len(found))
        names = [str(site) if head is None else str(replace(site, head=head)) for head in heads]
        values |= dict(zip(names, np.atleast_2d(found), strict=True))
    table = np.array(list(zip_longest(*values.values(), fillvalue=np.nan)), dtype=float).T
    return xr.DataArray(
        table, dims=("matrix", "index"), coords={"matrix": list(values), "index": np.arange(table.shape[1])}
    )


def _scores(
    model: HookedModel, batch: Batch, targets: TokenTargets, cells: Sequence[Sequence[LowRank]], kept: Decompositions
) -> Float[np.ndarray, "cell target score"]:
    """Mean scores of the targets under every set of cuts."""
    starts = [min((_layer(model, cut.site) for cut in cuts), default=0) for cuts in cells]
    sums = torch.zeros(len(cells), len(targets), len(TARGET_SCORES), dtype=torch.double)
    numbers = torch.arange(len(batch))
    for some, where in split_rows_into_passes(model, places_of_targets(targets, numbers)):
        rows = numbers[some]
        runs = _runs(model, batch.inputs[rows], where, set(starts))
        for i, (start, cuts) in enumerate(zip(starts, cells, strict=True)):
            with change_weights(model, cuts, decompositions=kept):
                logits = runs[start]()
            sums[i] += sum_scores_at(logits, targets, rows).cpu()
    return to_numpy(sums / target_counts(targets)[:, None])


def _layer(model: HookedModel, site: ParamSite) -> int:
    """The first layer that a weight takes part in, 0 for embeddings; that of the unembedding is behind the last."""
    return site.layer if site.layer is not None else model.cfg.n_layers if site.name == "W_U" else 0


def _runs(
    model: HookedModel, inputs: Int[Tensor, "batch pos"], where: Bool[Tensor, "batch pos"], layers: Collection[int]
) -> dict[int, Callable[[], Tensor]]:
    """For each layer a function that gives logits at some places from there on: what comes before is computed once.

    Where a model does not go on from there exactly (if it adds positions in every layer, say), from the tokens on.
    """
    names = {f"blocks.{layer - 1}.hook_resid_post": layer for layer in layers if layer}
    cache: dict[str, Tensor] = {}

    def hooked(tokens: Tensor) -> Tensor:
        output, found = model.run_with_cache(tokens, names_filter=lambda name: name in names)
        cache.update({name: found[name] for name in names})
        return output

    whole = logits_at(model, inputs, where, hooked)
    runs: dict[int, Callable[[], Tensor]] = {0: partial(logits_at, model, inputs, where)}
    for name, layer in names.items():
        onwards = partial(logits_at, model, cache[name], where, run_from_layer(model, layer, inputs))
        runs[layer] = onwards if torch.equal(onwards(), whole) else runs[0]
    return runs
