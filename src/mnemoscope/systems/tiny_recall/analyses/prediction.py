"""The predictions of a model on one sequence, slot by slot, beside the exact predictor."""

import xarray as xr

from mnemoscope import Batch, HookedModel
from mnemoscope.analyses import log_probs
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup


def predict(model: HookedModel, task: PermutationLookup, sequence: str | Batch) -> xr.Dataset:
    """Distribution over the values at every slot of one sequence.

    Args:
        model: Any hooked model.
        task: Defines the values.
        sequence: `x1 y1 x2 y2 ...` as text, ending with an x or with its y; or a batch of one sequence.

    Returns:
        Over (slot, value): `probability` of the model, `bayes` (uniform over the consistent permutations) and
        `used` (an earlier pair has the value as its y); over slot: `x`, `target` (0 where it is not given).

    Raises:
        InputError: The sequence is refused, or the model is too small.
    """
    batch = task.parse(sequence) if isinstance(sequence, str) else sequence
    values = list(task.answers)
    x, y = batch.inputs[0, ::2], batch.targets[0, ::2]
    return xr.Dataset(
        {
            "probability": (("slot", "value"), log_probs(model, task, batch)[0, ::2].exp()[:, values].numpy()),
            "bayes": (("slot", "value"), task.reference(batch, "bayes")[0, ::2][:, values].numpy()),
            "used": (("slot", "value"), [[value in y[:slot].tolist() for value in values] for slot in range(len(y))]),
            "x": ("slot", x.tolist()),
            "target": ("slot", y.tolist()),
        },
        coords={"slot": list(range(1, len(x) + 1)), "value": values},
    )
