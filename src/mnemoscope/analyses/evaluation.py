r"""How well a model predicts, against every exact predictor of its task.

For every scored position and subgroup: accuracy; loss, the cross-entropy :math:`-\log p(y)` in nats; and for every
reference :math:`q` its own loss (`floor`), the accuracy of its best guess (`best_accuracy`), :math:`KL(q \| p)`,
and the mean and the maximum over sequences and answer tokens of :math:`|p - q|`.

It shows how close predictions are to a named predictor on a named distribution; it does not show how the model
computes them. A reference that excludes what happens has an infinite floor; one that is undefined on some
sequences is compared on the others, whose share is `defined`, and is NaN where there are none.
"""

from collections.abc import Sequence

import torch
import xarray as xr
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from mnemoscope.analyses.forward import log_probs
from mnemoscope.core import metrics
from mnemoscope.core.batch import CHUNK, Batch
from mnemoscope.core.protocols import HookedModel, Task
from mnemoscope.core.seeding import generator

ALL = "all"
"""The subgroup of all sequences, each with its weight under the task."""


def evaluate(model: HookedModel, task: Task, batch: Batch) -> xr.Dataset:
    """Accuracy, loss and distances to the references of `task` on `batch`.

    Args:
        model: Any hooked model whose vocabulary and context are large enough.
        task: Knows references and subgroups.
        batch: Sampled or enumerated sequences. In an enumeration the weights decide the subgroup `all`; inside a
            subgroup that weighs nothing the sequences count alike.

    Returns:
        Variables `accuracy`, `loss` over (subgroup, pos); over (reference, subgroup, pos): `defined`, the share of
        the sequences on which the reference is defined, and on those `floor`, `best_accuracy`, `kl`,
        `mean_abs_error` and `max_abs_error`; `n` sequences a subgroup. `pos` holds the scored positions.

    Raises:
        InputError: The model is too small for the task, or predicts NaN.
    """
    groups = {ALL: torch.ones(len(batch), dtype=torch.bool), **task.subgroups(batch)}
    positions = batch.scored.any(0).nonzero()[:, 0]
    weights = torch.stack([_row_weights(batch, rows) for rows in groups.values()])
    sums = _Sums()
    for rows in torch.arange(len(batch)).split(CHUNK):
        chunk = batch.select(rows)
        share = weights[:, rows, None] * chunk.scored[:, positions]
        for name, values in _each(model, task, chunk, positions).items():
            sums.add(name, share[:, None], values)
    coords = {"subgroup": list(groups), "pos": positions.tolist(), "reference": list(task.references)}
    attrs = {"loss_unit": "nats", "task": repr(task)}
    counts = {"n": ("subgroup", [int(rows.sum()) for rows in groups.values()])}
    return xr.Dataset({**sums.variables(), **counts}, coords=coords, attrs=attrs)


class _Sums:
    """Weighted means (of `max_abs_error` the maximum) of values that come in chunks; NaN stays out."""

    def __init__(self) -> None:
        self._sum: dict[str, Tensor] = {}
        self._weight: dict[str, Tensor] = {}
        self._total: dict[str, Tensor] = {}
        self._max: Tensor | None = None

    def add(
        self,
        name: str,
        share: Float[Tensor, "subgroup 1 batch pos"],
        values: Float[Tensor, "row batch pos"],
    ) -> None:
        """Count a chunk of sequences in."""
        counts = (share > 0) & ~values.isnan()
        for store, part in (
            (self._sum, torch.where(counts, share * values, 0.0).sum(2)),
            (self._weight, torch.where(counts, share, 0.0).sum(2)),
            (self._total, share.sum(2).expand(-1, len(values), -1)),
        ):
            store[name] = store[name] + part if name in store else part
        if name == "max_abs_error":
            largest = torch.where(counts, values, -torch.inf).amax(2)
            self._max = largest if self._max is None else torch.maximum(self._max, largest)

    def variables(self) -> dict[str, tuple[tuple[str, ...], ndarray]]:
        """Dimensions and values of every variable."""
        by_reference = ("reference", "subgroup", "pos")
        arrays = {name: self._sum[name] / self._weight[name] for name in self._sum}
        assert self._max is not None
        arrays["max_abs_error"] = self._max.where(self._max >= 0, torch.nan)
        result: dict[str, tuple[tuple[str, ...], ndarray]] = {
            name: (by_reference, array.transpose(0, 1).numpy())
            for name, array in {**arrays, "defined": self._weight["kl"] / self._total["kl"]}.items()
        }
        return result | {name: (by_reference[1:], result[name][1][0]) for name in ("accuracy", "loss")}


def evaluate_splits(
    model: HookedModel,
    task: Task,
    *,
    splits: Sequence[str] = ("train", "test"),
    n_samples: int | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """`evaluate` on training and test mappings, along `split`.

    Args:
        model: Any hooked model.
        task: With a split chosen.
        splits: Which mappings.
        n_samples: Sequences to draw; none: enumerate all, exactly.
        seed: The draw comes from this seed's stream `evaluation`.
    """

    def batch(split: str) -> Batch:
        if n_samples is None:
            return task.enumerate(split=split)
        return task.sample(n_samples, split=split, generator=generator(seed, "evaluation", split))

    results = [evaluate(model, task, batch(split)) for split in splits]
    how = "enumerated" if n_samples is None else f"{n_samples} samples"
    return xr.concat(results, xr.DataArray(list(splits), dims="split", name="split")).assign_attrs(sequences=how)


def _row_weights(batch: Batch, rows: Tensor) -> Float[Tensor, " batch"]:
    """Weights of the rows of a subgroup, adding up to one; all NaN where there are none."""
    weights = rows.double()
    if batch.weights is not None and (batch.weights * weights).sum() > 0:
        weights = weights * batch.weights.double()
    return weights / weights.sum()


def _each(model: HookedModel, task: Task, batch: Batch, positions: Tensor) -> dict[str, Float[Tensor, "row batch pos"]]:
    """Every measure for every sequence, NaN where a reference is undefined; the first axis holds the references."""
    predicted = log_probs(model, task, batch)[:, positions]
    targets = batch.targets[:, positions]
    each = {
        "accuracy": metrics.correct(predicted, targets).double()[None],
        "loss": -metrics.at_target(predicted, targets)[None],  # all of the model's tokens share in p
    }
    by_reference = []
    for name in task.references:
        reference = task.reference(batch, name)[:, positions]
        errors = (predicted.exp() - reference).abs()[..., list(task.answers)]
        by_reference.append(
            {
                "floor": -metrics.at_target(reference, targets).log(),
                "best_accuracy": expected_accuracy(reference, targets),
                "kl": metrics.kl_divergence(reference, predicted),
                "mean_abs_error": errors.mean(-1),
                "max_abs_error": errors.amax(-1),
            }
        )
    return each | {name: torch.stack([values[name] for values in by_reference]) for name in by_reference[0]}


def expected_accuracy(
    predicted: Float[Tensor, "*rows d_vocab"], targets: Int[Tensor, "*rows"]
) -> Float[Tensor, "*rows"]:
    """Probability that the best guess is right, a random one where several are equally good.

    Args:
        predicted: Probabilities, or anything that grows with them.
        targets: The right tokens.
    """
    best = (predicted == predicted.amax(-1, keepdim=True)).double()
    return metrics.at_target(best, targets) / best.sum(-1)
