r"""How well a model predicts, by skill, for any task.

For every skill of the task, and for all scored positions together: accuracy, the probability that the best guess is
right (a random one where several are equally good); loss, :math:`-\log p(y)` in nats; and for every exact predictor
:math:`q` of the task its own loss (`floor`), the accuracy of its best guess (`best_accuracy`) and
:math:`KL(q \| p)`, at the positions where it is defined.

*Shows* what a model knows on a named distribution, beside what could be known; samples carry a sampling error.

*Does not show* how the model computes it, nor what it does where no skill of the task is tested.
"""

from collections.abc import Sequence

import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.analyses.evaluation import ALL, expected_accuracy
from mnemoscope.analyses.forward import log_probs
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.protocols import HookedModel, Task
from mnemoscope.core.seeding import generator

CHUNK = 128
"""Sequences whose predictions, and those of the references, are held at a time."""


def evaluate_skills(model: HookedModel, task: Task, batch: Batch) -> xr.Dataset:
    """Accuracy, loss and distance to the exact predictors, by skill.

    Args:
        model: Any hooked model whose vocabulary and context are large enough.
        task: Knows skills and references.
        batch: Of that task.

    Returns:
        Over skill: `accuracy`, `loss` and `n` (positions); over (reference, skill): `floor`, `best_accuracy`, `kl`.
        NaN where there is no position. The first skill, `all`, is every scored position.

    Raises:
        InputError: The model is too small for the task, or predicts NaN.
    """
    parts = [_chunk(model, task, batch.select(rows)) for rows in torch.arange(len(batch)).split(CHUNK)]
    rows = {name: torch.cat([part[name] for part in parts], 1) for name in parts[0]}
    skills = {ALL: batch.scored, **task.skills(batch)}
    arrays = {
        name: torch.stack([_means(values, mask) for mask in skills.values()], -1).numpy()
        for name, values in rows.items()
    }
    own = {name: ("skill", arrays[name][0]) for name in ("accuracy", "loss")}
    beside = {name: (("reference", "skill"), arrays[name]) for name in arrays if name not in own}
    return xr.Dataset(
        {**own, **beside, "n": ("skill", [int(mask.sum()) for mask in skills.values()])},
        coords={"skill": list(skills), **({"reference": list(task.references)} if beside else {})},
        attrs={"unit": "loss, floor and kl: nats; accuracy: share", "task": repr(task), "n_sequences": len(batch)},
    )


def evaluate_skills_of_splits(
    model: HookedModel, task: Task, *, splits: Sequence[str] = ("train", "test"), n: int, seed: int
) -> xr.Dataset:
    """`evaluate_skills` on samples of several splits, along `split`.

    Args:
        model: Any hooked model.
        task: With a split chosen.
        splits: Which.
        n: Sequences to draw from each.
        seed: The draw comes from this seed's stream `evaluation`.
    """
    results = [
        evaluate_skills(model, task, task.sample(n, split=split, generator=generator(seed, "evaluation", split)))
        for split in splits
    ]
    found = xr.concat(results, xr.DataArray(list(splits), dims="split", name="split"))
    return found.assign_attrs(sequences=f"{n} samples")


def _chunk(model: HookedModel, task: Task, batch: Batch) -> dict[str, Float[Tensor, "row batch pos"]]:
    """Every measure at every position, NaN where a reference is undefined; the first axis holds the references."""
    predicted = log_probs(model, task, batch)
    found = {
        "accuracy": expected_accuracy(predicted, batch.targets)[None],
        "loss": -metrics.at_target(predicted, batch.targets)[None],
    }
    beside: dict[str, list[Tensor]] = {"floor": [], "best_accuracy": [], "kl": []}
    for name in task.references:
        reference = task.reference(batch, name)
        undefined = reference.isnan().any(-1)
        beside["floor"].append(-metrics.at_target(reference, batch.targets).log())
        beside["best_accuracy"].append(expected_accuracy(reference, batch.targets).masked_fill(undefined, torch.nan))
        beside["kl"].append(metrics.kl_divergence(reference, predicted))
    return found | {name: torch.stack(values) for name, values in beside.items() if values}


def _means(values: Float[Tensor, "row batch pos"], mask: Bool[Tensor, "batch pos"]) -> Float[Tensor, " row"]:
    """Means over the positions of a mask where a value is defined."""
    return values[:, mask].nanmean(-1)
