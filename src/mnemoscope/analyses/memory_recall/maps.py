"""The scores behind the three memories of an induction head, as matrices to look at.

A row is a query (or the token attended to), a column a key (or a logit). Recall asks whether the right column is the
largest of its row (`memories`): the diagonal, since columns stand in the order of the rows that they belong to.
So that rows can be compared, every row is centred and divided by its standard deviation.

*Shows* what recall counts, and what is confused with what. *Does not show* more than that: see `memories`.
"""

from collections.abc import Sequence

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.circuits.weights import chosen_indices, effective_weights
from mnemoscope.analyses.memory_recall.matrices import ov, positions, qk
from mnemoscope.core.errors import in_range
from mnemoscope.core.protocols import HookedModel


@torch.no_grad()
def memory_maps(
    model: HookedModel,
    *,
    previous: tuple[int, int] = (0, 0),
    induction: tuple[int, int] = (1, 0),
    tokens: Sequence[int] | None = None,
) -> xr.Dataset:
    """Standardised scores of the three memories.

    Args:
        model: Any hooked model of at least two layers, with added positions.
        previous: Layer and head that should attend to the previous token.
        induction: Layer and head that should match what the former writes, and copy.
        tokens: Of the remapped copy and the copied token, in this order (triggers first, say); none: all.

    Returns:
        `previous_token` over (query, key), positions from 1 and from 0 on; `remapped_copy` over (token, copy);
        `copied_token` over (token, logit). In standard deviations of the row.

    Raises:
        InputError: There is no such head or token, or the model is not supported.
    """
    for layer, head in (previous, induction):
        in_range("the layer of a head", layer, 0, model.cfg.n_layers - 1)
        in_range("the number of a head", head, 0, model.cfg.n_heads - 1)
    first, second = (effective_weights(model, [layer]) for layer, _ in (previous, induction))
    chosen = chosen_indices("tokens", tokens, len(first.W_E))
    position, token = positions(first), first.W_E[chosen]
    scores = {
        "previous_token": position[1:] @ qk(first, (0, previous[1])) @ position[:-1].T,
        "remapped_copy": token @ qk(second, (0, induction[1])) @ (token @ ov(first, (0, previous[1]))).T,
        "copied_token": token @ ov(second, (0, induction[1])) @ first.W_U[:, chosen],
    }
    dims = {"previous_token": ("query", "key"), "remapped_copy": ("token", "copy"), "copied_token": ("token", "logit")}
    n_pos = len(position)
    return xr.Dataset(
        {name: (dims[name], _standardised(values).cpu().numpy()) for name, values in scores.items()},
        coords={
            **dict.fromkeys(("token", "copy", "logit"), chosen),
            "query": list(range(1, n_pos)),
            "key": list(range(n_pos - 1)),
        },
        attrs={"unit": "standard deviations of the row", "weights": first.description},
    )


def _standardised(scores: Float[Tensor, "row column"]) -> Float[Tensor, "row column"]:
    centred = scores - scores.mean(1, keepdim=True)
    return centred / centred.std(1, keepdim=True, correction=0)
