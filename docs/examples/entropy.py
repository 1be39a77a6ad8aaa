"""How sure a model is: the entropy of its predictions.

The mean over sequences of -sum p log p (nats), for every scored position and subgroup. It is 0 for a model that
excludes all tokens but one, and log(d_vocab) for a uniform one. It shows how sure a model is, not whether it is right.
"""

import torch
import xarray as xr

from mnemoscope import Batch, HookedModel, Task
from mnemoscope.analyses import log_probs


def entropy(model: HookedModel, task: Task, batch: Batch) -> xr.DataArray:
    """Mean entropy of the predictions.

    Args:
        model: Any hooked model whose vocabulary and context are large enough.
        task: Knows the subgroups.
        batch: Sequences; all count the same.

    Returns:
        Entropy in nats over (subgroup, pos); `pos` holds the scored positions.

    Raises:
        InputError: The model is too small for the task.
    """
    positions = batch.scored.any(0).nonzero()[:, 0]
    predicted = log_probs(model, task, batch)[:, positions]
    each = -torch.special.xlogy(predicted.exp(), predicted.exp()).sum(-1)
    groups = {"all": torch.ones(len(batch), dtype=torch.bool), **task.subgroups(batch)}
    return xr.DataArray(
        torch.stack([each[rows].mean(0) for rows in groups.values()]).numpy(),
        dims=("subgroup", "pos"),
        coords={"subgroup": list(groups), "pos": positions.tolist()},
        attrs={"unit": "nats", "n": len(batch)},
    )
