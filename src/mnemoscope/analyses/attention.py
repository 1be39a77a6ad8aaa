"""Attention of heads: patterns with names for a view, shares by mechanism, and the usual scores.

*Shares* (`attention_by_mechanism`). For every head, query and subgroup of the sequences, and every mechanism with the
keys S that it attends to:

- `share`: the attention on S, over the sequences in which the mechanism says something. Shares overlap.
- `exclusive`: each key counts for the first mechanism of the list that attends to it; what no mechanism attends to is
  `other`. Over all sequences of the subgroup, so that the parts add up to one.
- `overlap`: sum over keys of min(attention, mechanism); 1 only if the head attends as the mechanism says. It is
  smaller than the share where the weights on S are not even.
- `even_share`: the share that attention even over all keys would have: what a share is to be compared with.

A sequence consists of slots of `period` positions. The dependence of a share on the slot is its range and standard
deviation over the slots that have the mechanism, for each place in the slot; the first query, which has one key only,
is left out.

*The usual scores* (`head_scores`) say how much of its attention a head gives to what its name says: mean attention,
over all queries but the first that have such keys, to the query itself (`self`), the first token, the previous token,
earlier occurrences of the query's token (`duplicate token`), and the tokens after them (`induction`; Olsson et al.
2022, "In-context learning and induction heads"). They are the shares of `attention_by_mechanism`, without the query.
`even` is what attention even over all keys would score. The first two kinds of repetition have to occur:
`repeated_tokens` gives random tokens shown twice, the sequences on which these scores are usually read; there nothing
but the repetition can be predicted.

*Does not show* what a head contributes: patterns are correlational, and attention to a key need not use it. What a
mechanism is worth is measured by putting it in the head's place (`attention_replacement`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import numpy as np
import torch
import xarray as xr
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import CHUNK, Batch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.patterns import (
    Mechanism,
    after_earlier_same,
    check_names,
    checked_pattern,
    earlier_same,
    first,
    identity,
    previous,
)
from mnemoscope.core.protocols import (
    HookedModel,
    ModelLike,
    attention_mix,
    evaluation_mode,
    has_linear_attention,
    is_hooked,
    resolve_model,
)
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import Site
from mnemoscope.core.skills import prompt_means
from mnemoscope.interventions.reading import observe_run, pick_nothing, unembed_only

MAX_BYTES = 2**28
"""For the patterns of one layer, unless another bound is given."""
OTHER = "other"
Subgroups = Mapping[str, Bool[Tensor, " batch"]]

BY_QUERY = ("subgroup", "layer", "head", "query")
MEASURES: dict[str, str] = {"share": "mechanism", "overlap": "mechanism", "exclusive": "part", "mean_pattern": "key"}
"""The measures, each to the dimension that it has besides `BY_QUERY`."""

SCORES = {
    "self": identity(),
    "first token": first(),
    "previous token": previous(),
    "duplicate token": earlier_same(),
    "induction": after_earlier_same(),
}
"""The mechanisms behind the usual scores."""


@torch.no_grad()
def patterns(model: ModelLike, batch: Batch) -> Float[Tensor, "batch layer head_index query key"]:
    """Attention patterns of every layer; rows add up to one.

    >>> ms.analyses.patterns(model, batch).shape
    torch.Size([64, 1, 2, 9, 9])
    """
    model = resolve_model(model, batch=batch)
    with unembed_only(model, pick_nothing):
        _, cache = model.run_with_cache(batch.inputs, names_filter=lambda name: name.endswith("attn.hook_pattern"))
    return torch.stack([cache[f"blocks.{layer}.attn.hook_pattern"] for layer in range(model.cfg.n_layers)], 1)


@check_arguments
def named_patterns(
    model: ModelLike, batch: Batch, names: Sequence[str] | Sequence[Sequence[str]] | None = None
) -> xr.Dataset:
    """The attention of every head on each sequence of a batch, of any task, with names for a view.

    `names` are those of all tokens, or of the entries of every sequence; without them tokens are named by the batch,
    and vectors by their positions. Raises InputError where the model does not fit the batch.

    Returns:
        `pattern` over (example, layer, head, query, key) and `token` over (example, key), such as `x2=4` where
        positions have names; all of these are numbered. `n_tokens` over example: how many of them are no padding.

    >>> ms.analyses.named_patterns(model, batch.select(slice(1))).pattern.dims
    ('example', 'layer', 'head', 'query', 'key')
    """
    model = resolve_model(model, batch=batch)
    check_fits(model, batch, vectors=True)
    where = range(batch.inputs.shape[1])
    places = list(batch.positions[: len(where)])
    if names is None:
        rows = None if batch.has_vectors else batch.symbols
    elif isinstance(names[0], str):
        rows = [[str(names[token]) for token in row] for row in batch.inputs.tolist()]
    else:
        rows = names
    if rows is None:
        tokens = [places or [str(pos) for pos in where]] * len(batch)
    elif places:
        tokens = [[f"{place}={name}" for place, name in zip(places, row, strict=True)] for row in rows]
    else:
        tokens = [list(row) for row in rows]
    own = {"example": range(len(batch)), "layer": range(model.cfg.n_layers), "head": range(model.cfg.n_heads)}
    return xr.Dataset(
        {
            "pattern": (("example", "layer", "head", "query", "key"), to_numpy(patterns(model, batch))),
            "token": (("example", "key"), tokens),
            "n_tokens": ("example", batch.known_lengths.tolist()),
        },
        coords={**own, "query": where, "key": where, **batch.labels(query=where, key=where)},
    )


@torch.no_grad()
def layer_attention(model: ModelLike, layer: int, batch: Batch) -> Float[Tensor, "batch head_index query key"]:
    """The patterns of the heads of one layer, in float64; rows add up to one.

    Raises InputError where the layer does not exist, the model is too small for the batch, or attention is NaN or has
    no softmax.

    >>> ms.analyses.layer_attention(model, 0, batch).shape
    torch.Size([64, 2, 9, 9])
    """
    model = resolve_model(model, batch=batch)
    in_range("layer", layer, 0, model.cfg.n_layers - 1)
    found: list[Tensor] = []
    visit_layers(model, batch, lambda _, rows, attention: found.append(attention), layers=[layer])
    return torch.cat(found)


@torch.no_grad()
def visit_layers(
    model: HookedModel,
    batch: Batch,
    use: Callable[[int, slice, Float[Tensor, "rows head_index query key"]], object],
    *,
    layers: Sequence[int] | None = None,
    max_bytes: int = MAX_BYTES,
) -> None:
    """Hand on the patterns of layer after layer, in float64; rows add up to one. They are the model's to 1e-5.

    Where a constant is mixed with the softmax, a row is divided by its sum.

    One forward pass for every chunk of sequences, as far as the last layer that is wanted; nothing is unembedded. `use`
    gets the layer, which sequences, and their patterns, which it must not keep if memory counts. `max_bytes` bounds the
    patterns of a layer and what is made of them. Raises InputError where the model is too small for the batch, or
    attention is NaN or has no softmax.
    """
    check_fits(model, batch, vectors=True)
    if has_linear_attention(model):
        raise InputError("patterns are shares where there is a softmax; attention has none here")
    layers, mix = range(model.cfg.n_layers) if layers is None else sorted(layers), attention_mix(model)
    n_pos, size = batch.inputs.shape[1], len(batch)
    if not is_hooked(model):  # hooks that are on the model may know its rows
        size = max(1, min(CHUNK, max_bytes // (32 * model.cfg.n_heads * n_pos**2)))
    for start in range(0, len(batch), size):
        rows = slice(start, min(start + size, len(batch)))

        def take(pattern: Tensor, *, layer: int, rows: slice) -> None:
            # one row may stand for all
            attention = pattern.detach().double().expand(rows.stop - rows.start, *pattern.shape[1:])
            # TransformerLens turns a row of NaN into zeros, so that the logits do not show it
            if not (attention.sum(-1) > 0.5).all():
                raise InputError(
                    f"the attention of layer {layer} is NaN; check the weights, or take an earlier checkpoint"
                )
            use(layer, rows, attention if mix == 1 else attention / attention.sum(-1, keepdim=True))

        taken = {Site(kind="pattern", layer=layer).hook: partial(take, layer=layer, rows=rows) for layer in layers}
        if not observe_run(model, batch.inputs[rows], taken):
            hooks = [(name, lambda activation, hook, note=note: note(activation)) for name, note in taken.items()]
            with evaluation_mode(model):
                model.run_with_hooks(batch.inputs[rows], fwd_hooks=hooks, stop_at_layer=layers[-1] + 1)


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
        result["share"] = _attention_on(attention, keys)
    if "overlap" in measures:
        agreed = [torch.minimum(attention, rows.nan_to_num()[:, None]).sum(-1) for rows in patterns]
        result["overlap"] = torch.stack(agreed, -1) * rearrange(keys.any(-1), "m batch query -> batch 1 query m")
    if "exclusive" in measures:
        first = keys & (keys.cumsum(0) == 1)
        result["exclusive"] = _attention_on(attention, torch.cat((first, ~keys.any(0, keepdim=True))))
    if "mean_pattern" in measures:
        result["mean_pattern"] = attention
    return {name: torch.tensordot(groups, value, dims=1) for name, value in result.items()}


def _sequence_counts(keys: Bool[Tensor, "mechanism batch query key"]) -> dict[str, Tensor]:
    """The number of sequences that each sum is divided by."""
    said, everywhere = keys.any(-1).sum(1).T, torch.tensor(keys.shape[1])
    return {"share": said, "overlap": said, "exclusive": everywhere, "mean_pattern": everywhere}


def _attention_on(
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


def head_scores(model: ModelLike, batch: Batch, *, per_prompt: bool = False) -> xr.Dataset:
    """The scores of every head on a batch, such as `repeated_tokens`; `per_prompt` gives those of every prompt too.

    Returns:
        `score` over (score_name, layer, head), `even` over score_name: from 0 to 1. NaN where no query has such keys.
        With `per_prompt` also `score_by_prompt` and `even_by_prompt`, along `prompt`, for `ms.audit`.

    Raises:
        InputError: The model is too small for the batch, or the batch has one position only.

    >>> ms.analyses.head_scores(model, batch).score.dims
    ('score_name', 'layer', 'head')
    """
    model = resolve_model(model, batch=batch)
    in_range("the number of positions", batch.inputs.shape[1], 2, float("inf"))
    shares = attention_by_mechanism(model, batch, list(SCORES.values()), measures=["share"])
    shares = shares.isel(subgroup=0, query=slice(1, None))
    covered = shares.said.sum("query")
    parts = {"score": shares.share, "even": shares.even_share}
    means = {name: (value * (shares.said / covered)).sum("query").where(covered > 0) for name, value in parts.items()}
    result = xr.Dataset(means).drop_vars("subgroup").rename(mechanism="score_name")
    result = result.assign_coords(score_name=list(SCORES)).transpose("score_name", ...)
    if per_prompt:
        result = result.merge(_scores_by_prompt(model, batch))
    return result.assign_attrs(unit="share of attention", n=len(batch), weights="unprocessed")


def _scores_by_prompt(model: HookedModel, batch: Batch) -> xr.Dataset:
    """The mean over the queries but the first that have such keys, prompt by prompt; NaN where there are none."""
    keys = torch.stack([checked_pattern(mechanism, batch) > 0 for mechanism in SCORES.values()])
    said = keys.any(-1)[..., 1:]
    scores: dict[int, list[Tensor]] = {}

    def take(layer: int, rows: slice, attention: Float[Tensor, "rows head_index query key"]) -> None:
        on = rearrange(
            _attention_on(attention, keys[:, rows].to(attention.device))[:, :, 1:],
            "row head query s -> s head row query",
        )
        marked = said[:, None, rows].to(on.device)
        scores.setdefault(layer, []).append(prompt_means(on, marked.expand(on.shape)))

    visit_layers(model, batch, take)
    n_keys = torch.arange(2, keys.shape[-1] + 1, device=keys.device)
    dims = ("score_name", "layer", "head", "prompt")
    score = torch.stack([torch.cat(parts, -1) for _, parts in sorted(scores.items())], 1)
    return xr.Dataset(
        {
            "score_by_prompt": (dims, to_numpy(score)),
            "even_by_prompt": (("score_name", "prompt"), to_numpy(prompt_means(keys.sum(-1)[..., 1:] / n_keys, said))),
        },
        coords=batch.prompt_labels(),
    )


@check_arguments
def repeated_tokens(
    model: ModelLike,
    *,
    n: int = 64,
    length: int | None = None,
    tokens: Sequence[int] | None = None,
    first_token: int | None = None,
    seed: int = 0,
) -> Batch:
    """Random tokens, none of them twice, and then the same ones again in the same order.

    The model says how long sequences may be and which tokens there are (of a language model those that its tokenizer
    names, since embeddings may have rows to spare); `tokens` restricts these. `length` is that of
    the part that is repeated (none: as long as the model allows, up to 50). `first_token` comes before everything,
    where the model was trained with such a token; it is not drawn. Tokens come from the seed's stream `repeated
    tokens`.

    The batch is scored where the next token is known from the first part. Raises InputError where the sequences would
    be longer than the model reads, or where there are too few tokens.

    >>> ms.analyses.repeated_tokens(model, n=4).inputs.shape
    torch.Size([4, 8])
    """
    model = resolve_model(model)
    pool = torch.tensor(_named_tokens(model) if tokens is None else list(tokens))
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
    draws = torch.rand(n, len(pool), generator=generator(seed, "repeated tokens"), dtype=torch.float32)
    part = pool[draws.argsort(1)[:, :length]]
    inputs = torch.cat((torch.tensor(start).long().expand(n, -1), part, part), 1)
    scored = torch.zeros_like(inputs, dtype=torch.bool)
    scored[:, len(start) + length : -1] = True
    return Batch(inputs=inputs, targets=inputs.roll(-1, 1), scored=scored)


def _named_tokens(model: HookedModel) -> list[int]:
    """The tokens that the model's tokenizer names; all tokens where there is none."""
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        return list(range(model.cfg.d_vocab))
    return sorted(token for token in {*tokenizer.get_vocab().values()} if token < model.cfg.d_vocab)
