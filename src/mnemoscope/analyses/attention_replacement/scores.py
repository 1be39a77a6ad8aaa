"""What the learned attention is made of: its shares by mechanism, and the usual scores of heads.

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

*Does not show* what a head contributes: patterns are correlational, and attention to a key need not use it. What a
mechanism is worth is measured by putting it in the head's place (`replacement`).

*The usual scores* of attention heads say how much of its attention a head gives to what its name says: mean attention,
over all queries but the first that have such keys, to the query itself (`self`), the first token, the previous token,
earlier occurrences of the query's token (`duplicate token`), and the tokens after them (`induction`; Olsson et al.
2022, "In-context learning and induction heads"). They are the shares of `attention_by_mechanism`, without the query.
`even` is what attention even over all keys would score.

The first two kinds of repetition have to occur: `repeated_tokens` gives random tokens shown twice, the sequences on
which these scores are usually read; there nothing but the repetition can be predicted.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.analyses.attention import layer_attention
from mnemoscope.analyses.forward import check_fits
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.mechanism import Mechanism, check_names, checked_pattern, silent
from mnemoscope.core.patterns import after_earlier_same, earlier_same, first, identity, previous
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator

OTHER = "other"
Subgroups = Mapping[str, Bool[Tensor, " batch"]]

BY_QUERY = ("subgroup", "layer", "head", "query")
LAST = {"share": "mechanism", "overlap": "mechanism", "exclusive": "part", "mean_pattern": "key"}
"""What is measured of every query, and its last axis."""


def attention_by_mechanism(
    model: HookedModel,
    batch: Batch,
    mechanisms: Sequence[Mechanism],
    *,
    subgroups: Subgroups | None = None,
    period: int = 1,
) -> xr.Dataset:
    """Shares of every head's attention by mechanism.

    Args:
        model: Any hooked model.
        batch: The sequences.
        mechanisms: In the order in which keys are attributed to one of them only.
        subgroups: Kinds of sequences that are reported apart; none: `all` together.
        period: Length of a slot; 2 for pairs `x1 y1 x2 y2 ...`.

    Returns:
        `share` and `overlap` over (subgroup, layer, head, query, mechanism), NaN where the mechanism never says
        anything; `exclusive` over (..., query, part), the parts being the mechanisms and `other`; `mean_pattern`
        over (..., query, key); over (subgroup, query, mechanism) `even_share`, and `said`: in which share of the
        sequences the mechanism says something. `slot_range` and `slot_sd` of `share` over (subgroup, layer, head,
        place, mechanism), NaN with fewer than two slots. Queries have coordinates `slot` (from 1) and
        `query_place` (from 0).

    Raises:
        InputError: A mechanism's pattern could not be attention, two share a name, one is called `other`, a subgroup
            is empty, the model is too small for the batch, or attention is NaN.
    """
    check_fits(model, batch)
    check_names(mechanisms)
    names = [mechanism.name for mechanism in mechanisms]
    if OTHER in names:
        raise InputError(f"a mechanism must not be called {OTHER!r}, the name of what is left over; rename it")
    n_pos = batch.inputs.shape[1]
    in_range("period", period, 1, n_pos)
    groups = _groups(batch, subgroups)
    patterns = torch.stack([checked_pattern(mechanism, batch).double() for mechanism in mechanisms])
    layers = []
    for layer in range(model.cfg.n_layers):
        attention = layer_attention(model, layer, batch)
        layers.append([_measured(attention[mask], patterns[:, mask]) for mask in groups.values()])
    expected = [_expected(patterns[:, mask]) for mask in groups.values()]
    result = xr.Dataset(
        {
            **{
                name: (("subgroup", "layer", "head", "query", last), _stacked(layers, name))
                for name, last in LAST.items()
            },
            **{name: (("subgroup", "query", "mechanism"), _stacked([expected], name)[:, 0]) for name in expected[0]},
        },
        coords={
            "subgroup": list(groups),
            "layer": list(range(model.cfg.n_layers)),
            "head": list(range(model.cfg.n_heads)),
            "mechanism": names,
            "part": [*names, OTHER],
            "slot": ("query", [query // period + 1 for query in range(n_pos)]),
            "query_place": ("query", [query % period for query in range(n_pos)]),
        },
        attrs={"unit": "share of attention", "n": len(batch), "period": period, "weights": "unprocessed"},
    )
    return result.assign(slot_dependence(result.share.isel(query=slice(1, None))))


def slot_dependence(share: xr.DataArray) -> xr.Dataset:
    """Range and standard deviation of a share over the slots, for each place in the slot; NaN with fewer than two."""
    by_place = share.groupby("query_place")
    enough = by_place.count("query") > 1
    spread = {"slot_range": by_place.max("query") - by_place.min("query"), "slot_sd": by_place.std("query")}
    return xr.Dataset({name: value.where(enough) for name, value in spread.items()}).rename(query_place="place")


def _groups(batch: Batch, subgroups: Subgroups | None) -> dict[str, Bool[Tensor, " batch"]]:
    if subgroups is None:
        return {"all": torch.ones_like(batch.inputs[:, 0], dtype=torch.bool)}
    for name, mask in subgroups.items():
        if not mask.any():
            raise InputError(f"subgroup {name} has no sequence in the batch; take more prompts or leave it out")
    return dict(subgroups)


def _measured(
    attention: Float[Tensor, "batch head_index query key"], patterns: Float[Tensor, "mechanism batch query key"]
) -> dict[str, Float[Tensor, "head_index query value"]]:
    """What one layer's heads do in one subgroup."""
    free = torch.ones_like(attention[:, 0], dtype=torch.bool)
    share, overlap, exclusive = [], [], []
    for rows in patterns:
        keys, covered = rows > 0, (~silent(rows)).double()
        agreed = torch.minimum(attention, rows.nan_to_num()[:, None]).sum(-1)
        share.append(_on(attention, keys) / covered.sum(0))
        overlap.append(torch.einsum("bhq,bq->hq", agreed, covered) / covered.sum(0))
        exclusive.append(_on(attention, keys & free) / len(attention))
        free = free & ~keys
    exclusive.append(_on(attention, free) / len(attention))
    stacked = {"share": share, "overlap": overlap, "exclusive": exclusive}
    return {**{name: torch.stack(values, -1) for name, values in stacked.items()}, "mean_pattern": attention.mean(0)}


def _on(
    attention: Float[Tensor, "batch head_index query key"], keys: Bool[Tensor, "batch query key"]
) -> Float[Tensor, "head_index query"]:
    """Attention on some keys, added up over sequences."""
    return torch.einsum("bhqk,bqk->hq", attention, keys.to(attention))


def _expected(patterns: Float[Tensor, "mechanism batch query key"]) -> dict[str, Float[Tensor, "query mechanism"]]:
    """What does not depend on the model."""
    covered = (~silent(patterns)).double()
    even = (patterns > 0).sum(-1) / torch.arange(1, patterns.shape[-1] + 1, device=patterns.device)
    return {"even_share": ((even * covered).sum(1) / covered.sum(1)).T, "said": covered.mean(1).T}


def _stacked(layers: Sequence[Sequence[Mapping[str, Tensor]]], name: str) -> np.ndarray:
    """One measure over (subgroup, layer, ...)."""
    return torch.stack([torch.stack([group[name] for group in groups]) for groups in layers], 1).cpu().numpy()


SCORES = {
    "self": identity(),
    "first token": first(),
    "previous token": previous(),
    "duplicate token": earlier_same(),
    "induction": after_earlier_same(),
}


def head_scores(model: HookedModel, batch: Batch) -> xr.Dataset:
    """The scores of every head on a batch, such as `repeated_tokens`.

    Returns:
        `score` over (score_name, layer, head), `even` over score_name: from 0 to 1. NaN where no query has such keys.

    Raises:
        InputError: The model is too small for the batch, or the batch has one position only.
    """
    in_range("the number of positions", batch.inputs.shape[1], 2, float("inf"))
    shares = attention_by_mechanism(model, batch, list(SCORES.values())).isel(subgroup=0, query=slice(1, None))
    covered = shares.said.sum("query")
    parts = {"score": shares.share, "even": shares.even_share}
    means = {name: (value * (shares.said / covered)).sum("query").where(covered > 0) for name, value in parts.items()}
    result = xr.Dataset(means).drop_vars("subgroup").rename(mechanism="score_name")
    result = result.assign_coords(score_name=list(SCORES)).transpose("score_name", ...)
    return result.assign_attrs(unit="share of attention", n=len(batch), weights="unprocessed")


def repeated_tokens(
    model: HookedModel,
    *,
    n: int = 64,
    length: int | None = None,
    tokens: Sequence[int] | None = None,
    first_token: int | None = None,
    seed: int = 0,
) -> Batch:
    """Random tokens, none of them twice, and then the same ones again in the same order.

    Args:
        model: Says how long sequences may be and which tokens there are.
        n: How many sequences.
        length: Of the part that is repeated; none: as long as the model allows, up to 50.
        tokens: Which to draw from; none: all.
        first_token: What comes before everything, where the model was trained with such a token; it is not drawn.
        seed: Tokens come from this seed's stream `repeated tokens`.

    Returns:
        A batch scored where the next token is known from the first part.

    Raises:
        InputError: The sequences would be longer than the model reads, or there are too few tokens.
    """
    pool = torch.tensor(list(range(model.cfg.d_vocab)) if tokens is None else list(tokens))
    in_range("tokens", int(pool.min()), 0, model.cfg.d_vocab - 1)
    in_range("tokens", int(pool.max()), 0, model.cfg.d_vocab - 1)
    start = [] if first_token is None else [first_token]
    pool = pool[pool != first_token] if start else pool
    longest = min((model.cfg.n_ctx - len(start)) // 2, len(pool))
    length = min(50, longest) if length is None else length
    if not 2 <= length <= longest:
        raise InputError(
            f"length must be from 2 to {longest}, since the model reads {model.cfg.n_ctx} tokens and {len(pool)} "
            f"tokens are drawn from; got {length}"
        )
    draws = torch.rand(n, len(pool), generator=generator(seed, "repeated tokens"))
    part = pool[draws.argsort(1)[:, :length]]
    inputs = torch.cat((torch.tensor(start).long().expand(n, -1), part, part), 1)
    scored = torch.zeros_like(inputs, dtype=torch.bool)
    scored[:, len(start) + length : -1] = True
    return Batch(inputs=inputs, targets=inputs.roll(-1, 1), scored=scored)
