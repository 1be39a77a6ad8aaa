"""The three memories of an induction head, in any head of any model.

With one head per layer, W_Q the identity and the other matrices random and frozen, two layers learn an induction head
as three associative memories (Bietti et al. 2023, "Birth of a Transformer: A Memory Viewpoint"):

| memory | in the paper | matrix read here | from | to |
| --- | --- | --- | --- | --- |
| previous token | W_K of layer 1 | W_Q W_K^T | position t | position t - 1 |
| remapped copy | W_K of layer 2 | W_Q W_K^T | token | its copy through W_V W_O of layer 1 |
| copied token | W_O of layer 2 | W_V W_O | token | its unembedding |

With W_Q the identity, W_Q W_K^T is the paper's matrix. For the first two the paper's formula and its public code
differ: the code asks whether the right key scores highest for a query (`over="keys"`, as the softmax does), the formula
whether the right query scores highest for a key (`over="queries"`). Neither leaves out keys after the query, which
causal attention does not see; so a head may look one place back always and still not recall every position.

LayerNorm is folded; sigma and biases are left out, which may change the order of the first two
(`mnemoscope.analyses.weight_product`).

*Shows* which of the three links a model has learned, and, along training steps, in which order.

*Does not show* that the model works by induction, or that it does not. A link may be there and unused. The behaviour
may be there without the links, over several heads or from what MLPs write. See also `mnemoscope.analyses.recall_score`.

`memory_maps` are the scores behind recall, as matrices to look at. A row is a query (or the token attended to), a
column a key (or a logit). Recall asks whether the right column is the largest of its row: the diagonal, since columns
stand in the order of the rows that they belong to. So that rows can be compared, every row is centred and divided by
its standard deviation.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope import HookedModel, InputError
from mnemoscope.analyses import (
    Association,
    check_indices,
    effective_weights,
    embedding_vectors,
    recall_score,
    weight_product,
)
from mnemoscope.core import in_range, one_of

Head = tuple[int, int]
Over = Literal["keys", "queries"]
LEAST = 3
"""Positions between which there are two associations."""


@torch.no_grad()
def previous_token(
    model: HookedModel,
    *,
    head: Head = (0, 0),
    first: int = 0,
    n_pos: int | None = None,
    over: Over = "keys",
    **options: Any,
) -> xr.Dataset:
    """The recall of the previous token: a head's scores should lead from every position to the one before it.

    The model adds its positions to the residual stream. `head` is (layer, head). Only `n_pos` positions from `first` on
    are candidates (none: the rest of the context). `over` says whether keys compete for a query, or queries for a key.
    `options` are `k`, `weights`, `n_draws` and `seed` of `recall_score`. Raises InputError where there is no such head,
    there are fewer than three positions, or the model is not supported.

    Returns what `recall_score` does, over association labelled by the query's position; scores are attention scores.
    """
    weights = _weights(model, head)
    position = embedding_vectors(model, "W_pos")
    in_range("first", first, 0, len(position) - LEAST)
    n_pos = len(position) - first if n_pos is None else n_pos
    in_range("n_pos", n_pos, LEAST, len(position) - first)
    position = position[first : first + n_pos]
    labels = tuple(range(first + 1, first + n_pos))
    scores = weight_product(model, "QK", layer=head[0], head=head[1])
    return _attention("previous token", weights, scores, position[1:], position[:-1], labels, over, options)


@torch.no_grad()
def remapped_copy(
    model: HookedModel,
    *,
    writer: Head = (0, 0),
    head: Head = (1, 0),
    tokens: Sequence[int] | None = None,
    over: Over = "keys",
    **options: Any,
) -> xr.Dataset:
    """The recall of the remapped copy: a head's scores should lead from a token to an earlier head's version of it.

    Keys have gone through W_V W_O of the head `writer`, in an earlier layer; scores are read at `head`. `tokens` are
    queries and keys (in the paper the triggers, where they are fixed); none: all. `over` and `options` are as for
    `previous_token`. Raises InputError where there is no such head or token, the writer is not in an earlier layer,
    fewer than two tokens are chosen, or the model is not supported.

    Returns what `recall_score` does, over association labelled by the token; scores are attention scores.
    """
    weights = _weights(model, writer, head)
    if writer[0] >= head[0]:
        raise InputError(f"writer must be in an earlier layer than the head's, {head[0]}; got {writer[0]}")
    chosen = check_indices("tokens", tokens, len(weights.W_E))
    token = weights.W_E[chosen]
    remapped = token @ weight_product(model, "OV", layer=writer[0], head=writer[1])
    scores = weight_product(model, "QK", layer=head[0], head=head[1])
    return _attention("remapped copy", weights, scores, token, remapped, tuple(chosen), over, options)


@torch.no_grad()
def copied_token(
    model: HookedModel, *, head: Head = (1, 0), tokens: Sequence[int] | None = None, **options: Any
) -> xr.Dataset:
    """The recall of the copied token: a head that attends to a token should raise the logit of that token most.

    Arguments as for `remapped_copy`, of a model with the same input and output vocabulary; every logit is a candidate.

    Returns:
        As `recall_score`, over association labelled by the token; scores are logits at full attention.

    Raises:
        InputError: There is no such head or token, the vocabularies differ, or the model is not supported.
    """
    weights = _weights(model, head)
    if len(weights.W_E) != weights.W_U.shape[1]:
        sizes = f"{len(weights.W_E)} and {weights.W_U.shape[1]}"
        raise InputError(f"the input and output vocabularies must be the same; they have {sizes} tokens: use recall")
    chosen = check_indices("tokens", tokens, len(weights.W_E))
    target = Association(
        name="copied token",
        inputs=weights.W_E[chosen],
        outputs=weights.W_U.T,
        targets=torch.tensor(chosen),
        labels=tuple(chosen),
    )
    found = recall_score(weight_product(model, "OV", layer=head[0], head=head[1]), target, **options)
    return found.assign_attrs(unit="share; score and margin: logits", **_read(weights, "OV"))


def induction_memories(
    model: HookedModel,
    *,
    previous: Head = (0, 0),
    induction: Head = (1, 0),
    tokens: Sequence[int] | None = None,
    over: Over = "keys",
    **options: Any,
) -> xr.Dataset:
    """The state of the three memories, in numbers that can be followed along training steps.

    The model has at least two layers, added positions and one vocabulary. The head `previous` should attend to the
    previous token; `induction` should match what that writes, and copy. `tokens` are those of the remapped copy. `over`
    and `options` are as for `previous_token`, without `weights`. Errors are those of the three functions.

    Returns:
        What `recall_score` gives without dimensions, over memory: `previous token`; `previous token, early`, over the
        first quarter of the context (at least three positions); `remapped copy`; `copied token`.
    """
    early = max(LEAST, model.cfg.n_ctx // 4)
    found = {
        "previous token": previous_token(model, head=previous, over=over, **options),
        "previous token, early": previous_token(model, head=previous, n_pos=early, over=over, **options),
        "remapped copy": remapped_copy(model, writer=previous, head=induction, tokens=tokens, over=over, **options),
        "copied token": copied_token(model, head=induction, **options),
    }
    whole = [result.drop_dims("association").expand_dims(memory=[name]) for name, result in found.items()]
    joined = xr.concat(whole, "memory", combine_attrs="drop_conflicts")
    return joined.assign_attrs(unit="share; mean_margin: attention scores or logits", n_early=early, over=over)


def _weights(model: HookedModel, *heads: Head) -> Any:
    for layer, head in heads:
        in_range("the layer of a head", layer, 0, model.cfg.n_layers - 1)
        in_range("the number of a head", head, 0, model.cfg.n_heads - 1)
    return effective_weights(model, sorted({layer for layer, _ in heads}))


def _attention(
    name: str,
    weights: Any,
    scores: Float[Tensor, "d_model d_model"],
    queries: Float[Tensor, "association d_model"],
    keys: Float[Tensor, "association d_model"],
    labels: tuple[int, ...],
    over: Over,
    options: dict[str, Any],
) -> xr.Dataset:
    """Recall of pairs of a query and a key, either of them the one that has rivals."""
    one_of("over", over, get_args(Over))
    inputs, outputs, matrix = (queries, keys, scores) if over == "keys" else (keys, queries, scores.T)
    order = torch.arange(len(labels))
    target = Association(name=name, inputs=inputs, outputs=outputs, targets=order, labels=labels)
    found = recall_score(matrix, target, **options)
    return found.assign_attrs(unit="share; score and margin: attention scores", over=over, **_read(weights, "QK"))


def _read(weights: Any, matrix: str) -> dict[str, str]:
    left_out = "; sigma and biases left out" if weights.normalised else "; biases left out"
    return {"matrix": matrix, "weights": weights.description + left_out}


@torch.no_grad()
def memory_maps(
    model: HookedModel,
    *,
    previous: Head = (0, 0),
    induction: Head = (1, 0),
    tokens: Sequence[int] | None = None,
) -> xr.Dataset:
    """Standardised scores of the three memories.

    Arguments as for `induction_memories`; the remapped copy and the copied token have the tokens in this order
    (triggers first, say). Raises InputError where there is no such head or token, or the model is not supported.

    Returns:
        `previous_token` over (query, key), positions from 1 and from 0 on; `remapped_copy` over (token, copy);
        `copied_token` over (token, logit). In standard deviations of the row.
    """
    weights = _weights(model, previous, induction)
    chosen = check_indices("tokens", tokens, len(weights.W_E))
    position, token = embedding_vectors(model, "W_pos"), weights.W_E[chosen]
    (qk, ov), (next_qk, next_ov) = (
        [weight_product(model, name, layer=layer, head=head) for name in ("QK", "OV")]
        for layer, head in (previous, induction)
    )
    scores = {
        "previous_token": position[1:] @ qk @ position[:-1].T,
        "remapped_copy": token @ next_qk @ (token @ ov).T,
        "copied_token": token @ next_ov @ weights.W_U[:, chosen],
    }
    dims = {"previous_token": ("query", "key"), "remapped_copy": ("token", "copy"), "copied_token": ("token", "logit")}
    n_pos = len(position)
    coords = {"query": list(range(1, n_pos)), "key": list(range(n_pos - 1))}
    return xr.Dataset(
        {name: (dims[name], _standardised(values).cpu().numpy()) for name, values in scores.items()},
        coords={**dict.fromkeys(("token", "copy", "logit"), chosen), **coords},
        attrs={"unit": "standard deviations of the row", "weights": weights.description},
    )


def _standardised(scores: Float[Tensor, "row column"]) -> Float[Tensor, "row column"]:
    centred = scores - scores.mean(1, keepdim=True)
    return centred / centred.std(1, keepdim=True, correction=0)
