"""Two models, or two configurations over their seeds, beside each other.

How well each skill is answered, also along training; where the likeliest answers of two models differ on the same
sequences; and differences of labelled results whose labels need not all be there on both sides, such as the roles of
unlike numbers of heads.

*Shows* by how much two models differ on a distribution. *Does not show* why: they may differ in several fields of their
specification, and what differs between two single seeds may differ as much between two seeds of one configuration.
"""

import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.analyses.evaluation import ALL_SEQUENCES, evaluate
from mnemoscope.analyses.forward import check_task, read_logits_at, to_log_probs
from mnemoscope.core import metrics
from mnemoscope.core.batch import CHUNK, Batch, check_is_batch
from mnemoscope.core.numerics import difference_interval, to_numpy
from mnemoscope.core.protocols import ModelLike, Task, n_outputs, resolve_model
from mnemoscope.core.task import monitoring_batch

OUTCOMES = ("both", "first only", "second only", "neither")
"""The places at which both models, one of them, or neither is right."""


def skill_scores(model: ModelLike, task: Task, batch: Batch, *, chunk: int | None = None) -> xr.Dataset:
    """Accuracy and loss of a model where each skill is tested.

    Returns `accuracy` (share) and `loss` (nats) over skill; of vectors `loss` (squared error) over the parts of the
    answer. Of a task without skills all scored positions are one, `all`. `chunk` is as in `evaluate`. Raises InputError
    where the model does not fit the batch, or predicts NaN.

    >>> ms.analyses.skill_scores(model, task, batch).accuracy.dims
    ('skill',)
    """
    model = resolve_model(model, batch=batch)
    if batch.has_vectors:
        found = evaluate(model, task, batch, references=())
        return found[["loss"]].mean("pos").rename(part="skill").assign_attrs(loss_unit=batch.loss_unit, n=len(batch))
    found = evaluate(
        model,
        task,
        batch,
        by={"skill": task.skills(batch) or {ALL_SEQUENCES: batch.scored}},
        references=(),
        chunk=chunk,
    )
    return found[["accuracy", "loss"]].assign_attrs(loss_unit=batch.loss_unit, n=len(batch))


def skill_trajectory(model: ModelLike, task: Task, *, seed: int) -> xr.Dataset:
    """Accuracy and loss of every skill of one checkpoint: what is followed along the training of any task.

    Prompts are those that the run was monitored on (`core.monitoring`), split `test`: all checkpoints see the same, so
    that what differs along steps is the model. A skill whose exact predictor is right less than half of the time never
    reaches an accuracy of one half, and one that guessing gets right half of the time has it at step 0.

    The task has a split chosen; `seed` is the run's. Raises InputError where the model is too small for the task, or
    predicts NaN.

    Returns scalars `accuracy_<skill>` (share) and `loss_<skill>` (nats), float64; NaN where no position tests the
    skill. Of a task without skills all scored positions are one, `all`. Of vectors `loss` and `loss_<part>` (squared
    error).

    >>> sorted(ms.analyses.skill_trajectory(model, task, seed=0))[0]
    'accuracy_elimination'
    """
    model = resolve_model(model)
    batch = monitoring_batch(task, split="test", seed=seed)
    found = skill_scores(model, task, batch, chunk=CHUNK)
    whole = ALL_SEQUENCES if batch.has_vectors else None
    scalars = {
        f"{name}_{skill}" if skill != whole else str(name): float(values.sel(skill=skill))
        for name, values in found.data_vars.items()
        for skill in values.skill.values.tolist()
    }
    unit = batch.loss_unit if batch.has_vectors else "loss: nats; accuracy: share"
    return xr.Dataset(scalars, attrs={"unit": unit, "n_sequences": len(batch)})


def compare_predictions(one: ModelLike, other: ModelLike, task: Task, batch: Batch) -> xr.Dataset:
    """The answers of two models on the same sequences, wherever a skill is tested.

    The models may be of any architecture; the sequences are of tokens. Raises InputError where a model does not fit the
    task, or predicts NaN.

    Returns:
        Over (model, example, pos), where model is first or second, `guess` (the likeliest token), `p_guess` and
        `p_answer`; NaN where nothing is tested. `token` and `answer` over (example, pos). Over (outcome, skill) the
        `share` of the places at which both are right, the first only, the second only, or neither; `same_guess` over
        skill.

    >>> found = ms.analyses.compare_predictions(model, run.untrained(), task, batch)
    >>> found.share.sel(skill="recall", outcome="second only").item()
    0.0
    """
    check_is_batch(batch)
    one, other = resolve_model(one), resolve_model(other)
    skills = task.skills(batch) or {ALL_SEQUENCES: batch.scored}
    where = torch.stack(list(skills.values())).any(0)

    def answers(logits: Float[Tensor, "place d_vocab"], targets: Int[Tensor, " place"]) -> dict[str, Tensor]:
        log_probs = to_log_probs(logits)[:, : n_outputs(task)]
        likeliest = log_probs.max(-1)
        return {
            "guess": likeliest.indices.double(),
            "p_guess": likeliest.values.exp(),
            "p_answer": metrics.at_target(log_probs, targets).exp(),
        }

    found = []
    for model in (one, other):
        check_task(model, task, batch)
        found.append({name: values.cpu() for name, values in read_logits_at(model, batch, where, answers).items()})
    dims = ("model", "example", "pos")
    guess = torch.stack([each["guess"] for each in found])
    right = guess == batch.targets.cpu()
    outcomes = (right[0] & right[1], right[0] & ~right[1], ~right[0] & right[1], ~right[0] & ~right[1])
    masks = [mask.cpu() for mask in skills.values()]
    shares = [[float(each[mask].double().mean()) for mask in masks] for each in outcomes]
    same = [float((guess[0] == guess[1])[mask].double().mean()) for mask in masks]
    return xr.Dataset(
        {
            **{name: (dims, to_numpy(torch.stack([each[name] for each in found]))) for name in found[0]},
            "token": (dims[1:], to_numpy(batch.inputs)),
            "answer": (dims[1:], to_numpy(batch.targets)),
            "share": (("outcome", "skill"), shares),
            "same_guess": ("skill", same),
        },
        coords={
            "model": ["first", "second"],
            "example": range(len(batch)),
            "outcome": list(OUTCOMES),
            "skill": list(skills),
            "pos": (where := range(batch.inputs.shape[1])),
            **batch.labels(pos=where),
        },
        attrs={"task": repr(task), "n": len(batch)},
    )


def paired_difference(one: xr.DataArray, other: xr.DataArray) -> xr.DataArray:
    """Mean difference over seeds, `other` minus `one`, as `core.statistics.difference_interval` gives it.

    Both are over seed and other dimensions. Labels that only one of the two has are there in the result, with NaN.

    >>> one, other = (xr.DataArray(values, coords={"seed": [0, 1, 2]}) for values in ([1, 2, 3], [3, 4, 6]))
    >>> ms.analyses.paired_difference(one, other).sel(summary="mean").round(2).item()
    2.33
    """
    dims = [str(dim) for dim in one.dims if dim != "seed"]
    labels = {dim: list(dict.fromkeys([*one[dim].values.tolist(), *other[dim].values.tolist()])) for dim in dims}
    bare = (each.drop_vars([name for name in each.coords if name not in each.dims]) for each in (one, other))
    ours, theirs = (each.reindex(labels) for each in bare)
    return difference_interval(ours, theirs)
