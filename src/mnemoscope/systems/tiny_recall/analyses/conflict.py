"""The conflict set: sequences on which elimination and recall give different answers.

Four pairs are kept and the last x repeats an earlier one: recall answers that x's y, elimination the one value not
used yet. The published memorisation probe is the case of slot 1. It shows which answer a model gives, not by which
mechanism.
"""

import torch
import xarray as xr

from mnemoscope import HookedModel
from mnemoscope.analyses import log_probs
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup


def conflict(model: HookedModel, task: PermutationLookup, *, split: str = "test") -> xr.Dataset:
    """Probability of either answer on every conflict sequence of `split`, by the slot that is repeated.

    Returns:
        Over `source_slot`: the mean probability of the recalled value (`p_recalled`), of the unused value
        (`p_unused`) and of anything else (`p_other`), and the share of sequences on which each is the top answer
        (`chose_recalled`, `chose_unused`).

    Raises:
        InputError: The model is too small for the task, or the task too large to enumerate.
    """
    batch = task.conflict_set(split=split)
    answers = log_probs(model, task, batch)[:, -1]
    top = answers.argmax(-1)
    each = {}
    for kind in ("recalled", "unused"):
        value = batch.latents[kind]
        each[f"p_{kind}"] = answers.exp().gather(1, value[:, None])[:, 0]
        each[f"chose_{kind}"] = (top == value).double()
    each["p_other"] = 1 - each["p_recalled"] - each["p_unused"]
    slots = torch.arange(1, task.n_values)
    rows = [batch.latents["source_slot"] == slot for slot in slots]
    return xr.Dataset(
        {name: ("source_slot", [float(values[mask].mean()) for mask in rows]) for name, values in each.items()},
        coords={"source_slot": slots.tolist()},
        attrs={"split": split, "n": len(batch), "sequences": "enumerated"},
    )
