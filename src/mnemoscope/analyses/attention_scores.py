"""The usual scores of heads (`head_scores`), and the sequences on which they are usually read (`repeated_tokens`).

A score says how much of its attention a head gives to what its name says: mean attention, over all queries but the
first that have such keys, to the query itself (`self`), the first token, the previous token, earlier occurrences of the
query's token (`duplicate token`), and the tokens after them (`induction`; Olsson et al. 2022, "In-context learning and
induction heads"). They are the shares of `attention_by_mechanism`, without the query. `even` is what attention even
over all keys would score. The first two kinds of repetition have to occur: `repeated_tokens` gives random tokens shown
twice; there nothing but the repetition can be predicted.

*Does not show* what a head contributes, as for patterns (`attention`).
"""

from collections.abc import Sequence

import torch
import xarray as xr
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.attention import visit_layers
from mnemoscope.analyses.attention_shares import attention_by_mechanism, attention_on
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.patterns import after_earlier_same, checked_pattern, earlier_same, first, identity, previous
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.seeding import generator
from mnemoscope.core.skills import prompt_means

SCORES = {
    "self": identity(),
    "first token": first(),
    "previous token": previous(),
    "duplicate token": earlier_same(),
    "induction": after_earlier_same(),
}
"""The mechanisms behind the usual scores."""


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
            attention_on(attention, keys[:, rows].to(attention.device))[:, :, 1:],
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
