"""Shares of the attention of heads by mechanism (`attention_by_mechanism`).

For every head, query and subgroup of the sequences, and every mechanism with the keys S that it attends to:

- `share`: the attention on S, over the sequences in which the mechanism says something. Shares overlap.
- `exclusive`: each key counts for the first mechanism of the list that attends to it; what no mechanism attends to is
  `other`. Over all sequences of the subgroup, so that the parts add up to one.
- `overlap`: sum over keys of min(attention, mechanism); 1 only if the head attends as the mechanism says. It is
  smaller than the share where the weights on S are not even.
- `even_share`: the share that attention even over all keys would have: what a share is to be compared with.

A sequence consists of slots of `period` positions. The dependence of a share on the slot is its range and standard
deviation over the slots that have the mechanism, for each place in the slot; the first query, which has one key only,
is left out.

*Does not show* what a head contributes, as for patterns (`attention`).
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
import xarray as xr
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.analyses.attention import visit_layers
from mnemoscope.analyses.forward import check_fits
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.patterns import Mechanism, check_names, checked_pattern
from mnemoscope.core.protocols import ModelLike, resolve_model

OTHER = "other"
Subgroups = Mapping[str, Bool[Tensor, " batch"]]

BY_QUERY = ("subgroup", "layer", "head", "query")
MEASURES: dict[str, str] = {"share": "mechanism", "overlap": "mechanism", "exclusive": "part", "mean_pattern": "key"}
"""The measures, each to the dimension that it has besides `BY_QUERY`."""


@check_arguments
def attention_by_mechanism(
    model: ModelLike,
    batch: Batch,
    mechanisms: Sequence[Mechanism],
    *,
    subgroups: Subgroups | None = None,
    period: int = 1,
    measures: Collection[str] = tuple(MEASURES),
) -> xr.Dataset:
    """Shares of every head's attention by mechanism.

    A key is attributed to the first of `mechanisms` that takes it where it may have one only. `subgroups` of sequences
    are reported apart (none: `all` together). `period` is the length of a slot: 2 for pairs `x1 y1 x2 y2 ...`. Each of
    the four `measures` costs about as much as the others.

    Returns:
        `share` and `overlap` over (subgroup, layer, head, query, mechanism), NaN where the mechanism never says
        anything; `exclusive` over (..., query, part), the parts being the mechanisms and `other`; `mean_pattern`
        over (..., query, key); over (subgroup, query, mechanism) `even_share`, and `said`: in which share of the
        sequences the mechanism says something. With `share`, its `slot_range` and `slot_sd` over (subgroup, layer,
        head, place, mechanism), NaN with fewer than two slots. Queries have coordinates `slot` (from 1) and
        `query_place` (from 0).

    Raises:
        InputError: A mechanism's pattern could not be attention, two share a name, one is called `other`, a subgroup
            is empty, there is no such measure, the model is too small for the batch, or attention is NaN.

    >>> found = ms.analyses.attention_by_mechanism(model, batch, ms.core.patterns.common_mechanisms())
    >>> found.share.dims
    ('subgroup', 'layer', 'head', 'query', 'mechanism')
    """
    model = resolve_model(model, batch=batch)
    check_fits(model, batch, vectors=True)
    if batch.ragged:
        raise InputError("shares of attention are means over queries; the batch is padded: take texts of one length")
    check_names(mechanisms)
    names = [mechanism.name for mechanism in mechanisms]
    if OTHER in names:
        raise InputError(f"a mechanism must not be called {OTHER!r}, the name of what is left over; rename it")
    for measure in measures:
        one_of("a measure of attention", measure, MEASURES)
    n_pos = batch.inputs.shape[1]
    in_range("period", period, 1, n_pos)
    groups = _groups(batch, subgroups)
    patterns = [checked_pattern(mechanism, batch) for mechanism in mechanisms]
    keys = torch.stack([pattern > 0 for pattern in patterns])
    sums: dict[int, dict[str, Tensor]] = {}

    def add(layer: int, rows: slice, attention: Float[Tensor, "rows head_index query key"]) -> None:
        said = [pattern[rows] for pattern in patterns]
        in_group = torch.stack([mask[rows] for mask in groups.values()]).to(attention)
        found = _sums(attention, said, keys[:, rows].to(attention.device), in_group, measures)
        total = sums.setdefault(layer, {})
        total |= {name: total[name] + value if name in total else value for name, value in found.items()}

    visit_layers(model, batch, add)
    n_each = [_sequence_counts(keys[:, mask]) for mask in groups.values()]
    arrays = {name: _means([sums[layer] for layer in sorted(sums)], n_each, name) for name in measures}
    expected = [_expected(keys[:, mask]) for mask in groups.values()]
    place, said_over = np.arange(n_pos) % period, ("subgroup", "query", "mechanism")
    dependence = slot_dependence(arrays["share"][..., 1:, :], place[1:]) if "share" in arrays and n_pos > 1 else {}
    return xr.Dataset(
        {
            **{name: ((*BY_QUERY, MEASURES[name]), values) for name, values in arrays.items()},
            **{n: (said_over, to_numpy(torch.stack([group[n] for group in expected]))) for n in expected[0]},
            **{name: ((*BY_QUERY[:3], "place", "mechanism"), values) for name, values in dependence.items()},
        },
        coords={
            "subgroup": list(groups),
            "layer": list(range(model.cfg.n_layers)),
            "head": list(range(model.cfg.n_heads)),
            "query": range(n_pos),
            **({"key": range(n_pos)} if "mean_pattern" in arrays else {}),
            "mechanism": names,
            "part": [*names, OTHER],
            "slot": ("query", np.arange(n_pos) // period + 1),
            "query_place": ("query", place),
            "place": np.unique(place[1:]),
            **batch.labels(query=range(n_pos), **({"key": range(n_pos)} if "mean_pattern" in measures else {})),
        },
        attrs={"unit": "share of attention", "n": len(batch), "period": period, "weights": "unprocessed"},
    )


def slot_dependence(
    share: Float[np.ndarray, "subgroup layer head query mechanism"], place: Int[np.ndarray, " query"]
) -> dict[str, Float[np.ndarray, "subgroup layer head place mechanism"]]:
    """Range and standard deviation of a share over the slots, for each place in the slot; NaN with fewer than two."""
    parts: dict[str, list[np.ndarray]] = {"slot_range": [], "slot_sd": []}
    for each in np.unique(place):
        slots = share[:, :, :, place == each]
        enough = (~np.isnan(slots)).sum(3) > 1
        slots = np.where(enough[:, :, :, None], slots, 0)  # NumPy warns of what is NaN throughout
        parts["slot_range"].append(np.where(enough, np.nanmax(slots, 3) - np.nanmin(slots, 3), np.nan))
        parts["slot_sd"].append(np.where(enough, np.nanstd(slots, 3), np.nan))
    return {name: np.stack(values, 3) for name, values in parts.items()}


def _groups(batch: Batch, subgroups: Subgroups | None) -> dict[str, Bool[Tensor, " batch"]]:
    if subgroups is None:
        return {"all": torch.ones_like(batch.scored[:, 0])}
    for name, mask in subgroups.items():
        if not mask.any():
            raise InputError(f"subgroup {name} has no sequence in the batch; take more prompts or leave it out")
    return dict(subgroups)


def _sums(
    attention: Float[Tensor, "batch head_index query key"],
    patterns: Sequence[Float[Tensor, "batch query key"]],
    keys: Bool[Tensor, "mechanism batch query key"],
    groups: Float[Tensor, "subgroup batch"],
    measures: Collection[str],
) -> dict[str, Float[Tensor, "subgroup head_index query value"]]:
    """The attention of one layer's heads, added up over the sequences of each subgroup."""
    result = {}
    if "share" in measures:
        result["share"] = attention_on(attention, keys)
    if "overlap" in measures:
        agreed = [torch.minimum(attention, rows.nan_to_num()[:, None]).sum(-1) for rows in patterns]
        result["overlap"] = torch.stack(agreed, -1) * rearrange(keys.any(-1), "m batch query -> batch 1 query m")
    if "exclusive" in measures:
        first = keys & (keys.cumsum(0) == 1)
        result["exclusive"] = attention_on(attention, torch.cat((first, ~keys.any(0, keepdim=True))))
    if "mean_pattern" in measures:
        result["mean_pattern"] = attention
    return {name: torch.tensordot(groups, value, dims=1) for name, value in result.items()}


def _sequence_counts(keys: Bool[Tensor, "mechanism batch query key"]) -> dict[str, Tensor]:
    """The number of sequences that each sum is divided by."""
    said, everywhere = keys.any(-1).sum(1).T, torch.tensor(keys.shape[1])
    return {"share": said, "overlap": said, "exclusive": everywhere, "mean_pattern": everywhere}


def attention_on(
    attention: Float[Tensor, "batch head_index query key"], keys: Bool[Tensor, "part batch query key"]
) -> Float[Tensor, "batch head_index query part"]:
    """Attention on some keys of each part."""
    on = rearrange(attention, "batch head query key -> batch query head key") @ rearrange(
        keys, "part batch query key -> batch query key part"
    ).to(attention)
    return rearrange(on, "batch query head part -> batch head query part")


def _expected(keys: Bool[Tensor, "mechanism batch query key"]) -> dict[str, Float[Tensor, "query mechanism"]]:
    """The quantities that do not depend on the model."""
    said, n_keys = keys.any(-1), torch.arange(1, keys.shape[-1] + 1, device=keys.device)
    even = (keys.sum(-1) / n_keys).double()
    return {"even_share": (even.sum(1) / said.sum(1)).T, "said": said.double().mean(1).T}


def _means(layers: Sequence[Mapping[str, Tensor]], n_each: Sequence[Mapping[str, Tensor]], name: str) -> np.ndarray:
    """One measure over (subgroup, layer, ...)."""
    groups = [
        torch.stack([layer[name][number] for layer in layers]) / n[name].to(layers[0][name].device)
        for number, n in enumerate(n_each)
    ]
    return to_numpy(torch.stack(groups))
