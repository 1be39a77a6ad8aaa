"""The usual scores of attention heads: how much of its attention a head gives to what its name says.

Mean attention, over all queries but the first that have such keys, to the query itself (`self`), the first token,
the previous token, earlier occurrences of the query's token (`duplicate token`), and the tokens after them
(`induction`; Olsson et al. 2022, "In-context learning and induction heads"). They are the shares of
`attention_by_mechanism`, without the query. `even` is what attention even over all keys would score.

The first two kinds of repetition have to occur: `repeated_tokens` gives random tokens shown twice, the sequences on
which these scores are usually read; there nothing but the repetition can be predicted.

*Does not show* that the head is needed or what it copies.
"""

from collections.abc import Sequence

import torch
import xarray as xr

from mnemoscope.analyses.mechanisms.shares import attention_by_mechanism
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.patterns import after_earlier_same, earlier_same, first, identity, previous
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator

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
    said = shares.said / shares.said.sum("query")
    parts = {"score": shares.share, "even": shares.even_share}
    means = {name: (value * said).sum("query").where(shares.said.sum("query") > 0) for name, value in parts.items()}
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
