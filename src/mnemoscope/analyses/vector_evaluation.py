"""The distance of a model's vectors from the right ones, beside exact references.

The loss is the mean squared error over the entries of the answer, of all of them and of each part that the batch names
(`parts`): the partial losses. A reference is compared by its own loss, the floor of what it knows, and by the mean
squared distance between its vectors and the model's.
"""

from collections.abc import Sequence

import torch
import xarray as xr

from mnemoscope.analyses.forward import predicted_vectors
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import one_of
from mnemoscope.core.protocols import HookedModel, Task

ALL = "all"
"""The part that is the whole answer."""


@torch.no_grad()
def evaluate_vectors(
    model: HookedModel, task: Task | None, batch: Batch, *, references: Sequence[str] | None = None
) -> xr.Dataset:
    """Squared errors of a model that gives vectors, by part of the answer and by scored position.

    Each sequence counts by its weight, where it has one. Without `references`, all exact predictors of the task are
    taken. Raises InputError where the model does not fit the batch, its outputs hold NaN, or there is no such
    reference.

    Returns:
        `loss` over (part, pos); over (reference, part, pos) `floor`, the loss of the reference, and `distance`, the
        mean squared distance of the model from it; `n` sequences.
    """
    names = [] if task is None else list(task.references if references is None else references)
    for name in names:
        one_of("a reference", name, task.references if task else ())
    outputs, targets = predicted_vectors(model, batch), batch.targets.double()
    positions = batch.scored.any(0).nonzero()[:, 0]
    weights = torch.ones(len(batch)) if batch.weights is None else batch.weights
    shares = (weights.to(outputs)[:, None] * batch.scored)[:, positions]
    parts = {ALL: slice(None), **batch.parts}

    def errors(one: torch.Tensor, other: torch.Tensor) -> list[list[float]]:
        each = [metrics.squared_error(one[..., part], other[..., part])[:, positions] for part in parts.values()]
        means = [(shares * values.nan_to_num()).sum(0) / shares.sum(0) for values in each]
        return [mean.tolist() for mean in means]

    coords = {"part": list(parts), "pos": positions.tolist(), **batch.labels(pos=positions.tolist())}
    attrs = {"loss_unit": batch.loss_unit, "n": len(batch), "task": repr(task)}
    result = xr.Dataset({"loss": (("part", "pos"), errors(outputs, targets))}, coords=coords, attrs=attrs)
    if not names or task is None:
        return result
    dims, predicted = ("reference", "part", "pos"), [task.reference(batch, name) for name in names]
    compared = {"floor": targets, "distance": outputs}
    beside = {name: (dims, [errors(each, other) for each in predicted]) for name, other in compared.items()}
    return result.assign(beside).assign_coords(reference=names)
