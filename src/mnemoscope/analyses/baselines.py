"""The gate before analyses: a model's predictions against guesses and the exact baselines, skill by skill.

Removing a head from a model that guesses shows nothing about how the task is done. A model has *learned* a skill if it
is better than each baseline, in log-probability or in accuracy, by more than three standard errors over sequences. One
baseline is the best constant guess (how often each answer is right at these positions). Of a skill with one answer,
such as a class, nobody could beat it. There the guess knows how often each answer is right at all scored positions,
provided that the model beats this guess over all of them. The other baselines are all exact predictors of the task that
are worse than the best one by more than a fiftieth of the loss of the constant guess. Vectors are compared by squared
error; their constant guess is the mean target.

It does not show that a skill is learned well, nor how: a model slightly better than every baseline passes. And a model
that does part of a task may fail, where an exact predictor does that part better.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.analyses.evaluation import ALL_SEQUENCES
from mnemoscope.analyses.forward import log_probs, predicted_vectors
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.protocols import HookedModel, ModelLike, Task, resolve_model
from mnemoscope.core.seeding import generator
from mnemoscope.models.run import Run

GATE = "gate"
"""Name of the result of `gate` among others."""
CONSTANT = "constant guess"
N_SEQUENCES = 512
"""Sequences of each subgroup that a run is judged by."""
N_ERRORS = 3
"""Standard errors by which a model has to be better than a baseline."""
NEAR = 0.02
"""Share of the loss of the constant guess by which a predictor may miss the best one and be no baseline."""
LARGEST = 50.0
"""Nats at which a loss is cut, so that an answer that a predictor excludes does not make the mean infinite."""

Level = Literal["learned", "above_chance"]
Scores = Mapping[str, Float[Tensor, "batch pos"]]
"""`gain`, larger is better, and for tokens `right`, 1 where the most probable token is the answer."""
Comparison = tuple[str, Bool[Tensor, "batch pos"], Scores, Mapping[str, Scores]]
"""A skill, where it is tested, the model's scores there, and those of others by name, the constant guess first."""


@torch.no_grad()
def gate(model: ModelLike, task: Task, batch: Batch) -> xr.Dataset:
    """Compare a model with the baselines of its task on sequences that it may be judged by.

    The skills of vectors are their parts. Where there are none, all scored positions count as one, `all`. Positions
    count alike; standard errors take sequences as clusters. Raises InputError where the model does not fit the task, or
    predicts NaN.

    Returns:
        Over (skill, baseline): `advantage` of the model (nats, or squared error), `advantage_error` (standard error
        over sequences), and of tokens `more_right` and `more_right_error`, NaN where a predictor is no baseline;
        `better`. Over skill: `learned`, better than every baseline, and `above_chance`, better than the constant guess;
        both False where no position tests the skill.

    >>> ms.analyses.gate(model, task, batch).learned.to_series().to_dict()
    {'elimination': True, 'recall': True}
    """
    model = resolve_model(model, batch=batch)
    compared = _compare_vectors(model, task, batch) if batch.has_vectors else _compare_tokens(model, task, batch)
    baselines, cells, tested = [CONSTANT, *task.references], {}, []
    for skill, mask, own, others in compared:
        cells[skill] = _skill(own, others, mask)
        tested.append(bool(mask.any()))
    values = {
        name: (("skill", "baseline"), np.array([[found[name][b] for b in baselines] for found in cells.values()]))
        for name in next(iter(cells.values()))
    }
    result = xr.Dataset(values, coords={"skill": list(cells), "baseline": baselines})
    unit = "squared error" if batch.has_vectors else "nats"
    return result.assign(
        learned=result.better.all("baseline") & xr.DataArray(tested, dims="skill"),
        above_chance=result.better.sel(baseline=CONSTANT, drop=True) & xr.DataArray(tested, dims="skill"),
    ).assign_attrs(unit=unit, n=len(batch))


def gate_of_run(run: Run, *, split: str = "test", step: int | None = None) -> xr.Dataset:
    """`gate` of a checkpoint (none: the last) on sequences drawn for it, `N_SEQUENCES` of each subgroup.

    >>> ms.analyses.gate_of_run(run).learned.to_series().to_dict()
    {'elimination': True, 'recall': True}
    """
    task, seed = run.spec.task, run.spec.seed
    batch = task.monitor(N_SEQUENCES, split=split, generator=generator(seed, GATE, split))
    return gate(run.hooked(step), task, batch)


def select_learners(results: Mapping[str, Any], level: Level = "learned") -> dict[str, Any]:
    """Results of the seeds that reach a level on some skill, by the result `gate` among them; all if none does.

    `results` are by name datasets along `seed`, or trees with a dataset per seed. The `level` is to be better than
    every baseline, or than the constant guess.

    >>> found = {"gate": ms.analyses.gate_of_run(run).expand_dims(seed=[16])}
    >>> ms.analyses.select_learners(found)["gate"].seed.values.tolist()
    [16]
    """
    some = results[GATE][level].any("skill")
    kept = [int(seed) for seed in some.seed.values[some.values]]
    if not kept or len(kept) == some.size:
        return dict(results)

    def select(result: Any) -> Any:
        if isinstance(result, xr.DataTree):
            nodes = {f"seed-{seed}": result.children[f"seed-{seed}"].to_dataset() for seed in kept}
            return xr.DataTree.from_dict(nodes)
        return result.sel(seed=kept) if "seed" in result.dims else result

    return {name: select(result) for name, result in results.items()}


def select_learned_skills(results: Mapping[str, Any]) -> dict[str, Any]:
    """Results without the skills that no seed learned, and NaN where a seed did not learn a skill.

    Skills are labels of a dimension `skill` or `target`, or the end of a result's name, `patch_recall`.

    >>> found = {"gate": ms.analyses.gate_of_run(run).expand_dims(seed=[16])}
    >>> sorted(ms.analyses.select_learned_skills(found))
    ['gate']
    """
    learned = results[GATE].learned
    lost = {str(skill) for skill in learned.skill.values[~learned.any("seed").values]}
    found = {}
    for name, result in results.items():
        skill = name.partition("_")[2]
        if skill in lost:
            continue
        if isinstance(result, xr.Dataset) and name != GATE:
            result = _masked(result, learned, lost)
            if skill in learned.skill.values and "seed" in result.dims:
                result = _mask_numbers(result, learned.sel(skill=skill, drop=True))
        found[name] = result
    return found


def _masked(result: xr.Dataset, learned: xr.DataArray, lost: set[str]) -> xr.Dataset:
    for dim in ("skill", "target"):
        if dim not in result.dims:
            continue
        result = result.sel({dim: [label for label in result[dim].values if str(label) not in lost]})
        known = [label for label in result[dim].values if label in learned.skill.values]
        if "seed" not in result.dims or len(known) < result.sizes[dim]:
            continue
        mask = learned.sel(skill=known)
        result = _mask_numbers(result, mask if dim == "skill" else mask.rename(skill=dim))
    return result


def _mask_numbers(result: xr.Dataset, mask: xr.DataArray) -> xr.Dataset:
    """The same with NaN where the mask is False, in the variables of numbers that have its dimensions."""
    numbers = {name: each for name, each in result.data_vars.items() if each.dtype.kind == "f"}
    return result.assign({name: each.where(mask) for name, each in numbers.items() if {*mask.dims} <= {*each.dims}})


def _compare_tokens(model: HookedModel, task: Task, batch: Batch) -> Iterator[Comparison]:
    """The scores of answers; the constant guess of a skill is how often each answer is right there."""
    own = _answer_scores(log_probs(model, task, batch, where=batch.scored), batch)
    exact = {name: task.reference(batch, name).double().clamp_min(1e-300).log() for name in task.references}
    others = {name: _answer_scores(values, batch) for name, values in exact.items()}
    for skill, mask in (task.skills(batch) or {ALL_SEQUENCES: batch.scored}).items():
        guess = _constant_guess(batch, mask)
        if len(batch.targets[mask].unique()) == 1:
            overall = _constant_guess(batch, batch.scored)
            mean, error = _difference(own["gain"] - overall["gain"], batch.scored)
            guess = overall if mean > N_ERRORS * error else guess
        yield skill, mask, own, {CONSTANT: guess, **others}


def _constant_guess(batch: Batch, mask: Bool[Tensor, "batch pos"]) -> Scores:
    """The scores of how often each answer is right at some positions."""
    counts = torch.bincount(batch.targets[mask], minlength=int(batch.targets.max()) + 1).double()
    log_share = (counts / counts.sum()).clamp_min(1e-300).log()
    return {
        "gain": log_share[batch.targets].clamp_min(-LARGEST),
        "right": (batch.targets == counts.argmax()).double(),
    }


def _compare_vectors(model: HookedModel, task: Task, batch: Batch) -> Iterator[Comparison]:
    """The errors of every part of the vectors; the constant guess is the mean target."""
    mean = batch.targets[batch.scored].mean(0).expand_as(batch.targets)
    exact = {name: task.reference(batch, name) for name in task.references}
    own = predicted_vectors(model, batch)
    for skill, part in (batch.parts or {ALL_SEQUENCES: slice(None)}).items():

        def gain(values: Float[Tensor, "batch pos d_output"], part: slice = part) -> Scores:
            return {"gain": -metrics.loss(values[..., part].double(), batch.targets[..., part])}

        yield skill, batch.scored, gain(own), {name: gain(each) for name, each in {CONSTANT: mean, **exact}.items()}


def _skill(own: Scores, others: Mapping[str, Scores], mask: Bool[Tensor, "batch pos"]) -> dict[str, dict[str, float]]:
    """The comparisons at the positions of one skill, by variable and baseline."""
    losses = {name: -_mean(scores["gain"], mask) for name, scores in others.items()}
    best = min((loss for name, loss in losses.items() if name != CONSTANT), default=-np.inf)
    near = NEAR * losses[CONSTANT]
    columns = {"gain": "advantage", "right": "more_right"}
    found: dict[str, dict[str, float]] = {"better": {}}
    for name, scores in others.items():
        compares = name == CONSTANT or best + near < losses[name] < np.inf
        better = not compares
        for kind in own:
            mean, error = _difference(own[kind] - scores[kind], mask) if compares else (np.nan, np.nan)
            found.setdefault(columns[kind], {})[name] = mean
            found.setdefault(f"{columns[kind]}_error", {})[name] = error
            better = better or mean > N_ERRORS * error
        found["better"][name] = better
    return found


def _difference(values: Float[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"]) -> tuple[float, float]:
    """Mean over positions, without those that are NaN, and its standard error with sequences as clusters."""
    where = mask & values.isfinite()
    n, total = where.sum(1), int(where.sum())
    if int((n > 0).sum()) < 2:
        return np.nan, np.nan
    sums = (values.nan_to_num(0, 0, 0) * where).sum(1)
    mean = sums.sum() / total
    return float(mean), float((sums - mean * n).square().sum().sqrt() / total)


def _mean(values: Float[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"]) -> float:
    where = mask & values.isfinite()
    return float(values[where].mean()) if where.any() else -np.inf


def _answer_scores(values: Float[Tensor, "batch pos d_vocab"], batch: Batch) -> dict[str, Float[Tensor, "batch pos"]]:
    gain = metrics.at_target(values, batch.targets).clamp_min(-LARGEST)
    return {"gain": gain, "right": metrics.is_correct(values, batch.targets).double().where(~gain.isnan(), torch.nan)}
