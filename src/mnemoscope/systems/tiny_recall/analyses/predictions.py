"""The answers of a model: slot by slot on one sequence, and where elimination and recall give different answers.

On the *conflict set* four pairs are kept and the last x repeats an earlier one: recall answers that x's y, elimination
the one value not used yet. The published memorisation probe is the case of slot 1.

It shows which answer a model gives, not by which mechanism.
"""

import torch
import xarray as xr

from mnemoscope import Batch, HookedModel
from mnemoscope.analyses import log_probs
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup


def predict(model: HookedModel, task: PermutationLookup, sequence: str | Batch) -> xr.Dataset:
    """Distribution over the values at every slot of one sequence.

    The sequence is `x1 y1 x2 y2 ...` as text, ending with an x or with its y; or a batch of one sequence.

    Over (slot, value): `probability` of the model, `bayes` (uniform over the consistent permutations) and `used` (an
    earlier pair has the value as its y). Over slot: `x`, `target` (0: not given) and `repeats`, the earlier slot with
    the same x (0: none). Raises InputError where the sequence is refused or the model is too small.
    """
    batch = task.parse(sequence) if isinstance(sequence, str) else sequence
    values = list(task.answers)
    x, y = batch.inputs[0, ::2], batch.targets[0, ::2]
    seen = x.tolist()
    first = [seen.index(each) + 1 for each in seen]
    return xr.Dataset(
        {
            "probability": (("slot", "value"), log_probs(model, task, batch)[0, ::2].exp()[:, values].numpy()),
            "bayes": (("slot", "value"), task.reference(batch, "bayes")[0, ::2][:, values].numpy()),
            "used": (("slot", "value"), [[value in y[:slot].tolist() for value in values] for slot in range(len(y))]),
            "x": ("slot", x.tolist()),
            "target": ("slot", y.tolist()),
            "repeats": ("slot", [slot if slot <= place else 0 for place, slot in enumerate(first)]),
        },
        coords={"slot": list(range(1, len(x) + 1)), "value": values},
    )


def conflict(model: HookedModel, task: PermutationLookup, *, split: str = "test") -> xr.Dataset:
    """Probability of either answer on every conflict sequence of `split`, by the slot that is repeated.

    Over `source_slot`: the mean probability of the recalled value, the unused value and anything else (`p_recalled`,
    `p_unused`, `p_other`), and how often each of the first two is the top answer (`chose_recalled`, `chose_unused`).
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
