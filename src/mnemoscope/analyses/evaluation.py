r"""The quality of a model's predictions, against every exact predictor of its task.

Accuracy; loss, the cross-entropy :math:`-\log p(y)` in nats; and for every reference :math:`q` its own loss (`floor`),
the accuracy of its best guess (`best_accuracy`) and :math:`KL(q \| p)`. They are given

- for every scored position and subgroup of the sequences (`by="subgroup"`), weighted as the task weights its sequences,
  with the mean and the maximum over sequences and answer tokens of :math:`|p - q|`. Accuracy is that of the most
  probable token, of equals the lowest;
- for every skill of the task, and all scored positions together (`by="skill"`), or for any sets of positions. Every
  position counts alike. Accuracy is the probability that the best guess is right, a random one of several that are
  equally good.

Of vectors the loss is the mean squared error over the entries of the answer, of all of them and of each part that the
batch names.

`accuracy_by_skill`, `learned` and `evaluated` are numbers of one model on every sequence over the mappings of a split,
so that they are exact, and are taken once for each model: every measure of a gated claim needs them again.

It shows how close predictions are to a named predictor on a named distribution, and samples carry a sampling error; it
does not show how the model computes them, nor what it does where no skill is tested. A reference that excludes what
happens has an infinite floor; one that is undefined on some sequences is compared on the others, and is NaN where there
are none.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from mnemoscope.analyses.forward import check_fits, check_task, log_probs, predicted_vectors, scatter, to_log_probs
from mnemoscope.core import metrics
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import CHUNK, Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.protocols import HookedModel, ModelLike, Task, n_outputs, resolve_model
from mnemoscope.core.runtime import memoize
from mnemoscope.core.seeding import generator
from mnemoscope.core.skills import skill_means
from mnemoscope.engine.budget import LOG_PROBS, split_into_passes
from mnemoscope.interventions.reading import logits_by_engine
from mnemoscope.models.subjects import Subject

ALL_SEQUENCES = "all"
"""The subgroup of all sequences, each with its weight under the task; the skill of all scored positions."""
SKILL_CHUNK = 128
"""Sequences whose predictions, and those of the references, are held at a time."""

_COMPARED = 72
"""Bytes of a logit, besides, where predictions are compared with references."""

Positions = Mapping[str, Mapping[str, Bool[Tensor, "batch pos"]]]
"""The name of one dimension to sets of positions by name."""


@check_arguments
def evaluate(
    model: ModelLike,
    task: Task | None,
    batch: Batch,
    *,
    by: Literal["subgroup", "skill"] | Positions = "subgroup",
    references: Sequence[str] | None = None,
    chunk: int | None = None,
    exact: Mapping[str, Float[Tensor, "batch pos d_vocab"]] | None = None,
) -> xr.Dataset:
    """Accuracy, loss and distances to the references of `task` on `batch`.

    Args:
        model: A run, a subject or any hooked model whose vocabulary and context are large enough.
        task: Knows references, subgroups and skills. None: there are no references, and all tokens of the model count.
        batch: Sampled or enumerated sequences. In an enumeration the weights decide the subgroup `all`; inside a
            subgroup that weighs nothing the sequences count alike.
        by: `subgroup` (and position), `skill`, or one dimension of your own, such as
            `{"half": {"first": mask, "second": mask}}`.
        references: Names of exact predictors; none: all that the task has.
        chunk: Sequences in one forward pass at most; none: 1024, or 128 by skill or positions. Fewer where their
            logits would take more than 256 MiB.
        exact: What references predict on the batch, by subgroup, where that is known already; none: they are computed.

    Returns:
        By subgroup: variables `accuracy`, `loss` over (subgroup, pos); over (reference, subgroup, pos): `defined`, the
        share of the sequences on which the reference is defined, and on those `floor`, `best_accuracy`, `kl`,
        `mean_abs_error` and `max_abs_error`; `n` sequences per subgroup. `pos` holds the scored positions.

        Of vectors: `loss` over (part, pos), the parts being `all` and those of the batch; over (reference, part, pos)
        `floor`, the loss of the reference, and `distance`, the mean squared distance of the model from it.

        By skill or positions: over that dimension `accuracy`, `loss` and `n` (positions); over (reference, dimension)
        `floor`, `best_accuracy`, `kl`. NaN where there is no position. The skill `all` is every scored position.

    Raises:
        InputError: The model is too small for the task, or predicts NaN; no position is scored; there is no such
            reference; or subgroups or skills are wanted without a task, or of vectors.

    >>> found = ms.evaluate(model, task, batch, by="skill")
    >>> found.accuracy.round(1).to_series().to_dict()
    {'all': 0.4, 'elimination': 1.0, 'recall': 1.0}
    """
    model = resolve_model(model, batch=batch)
    if isinstance(by, str):
        batch.check_scored()
    names = [] if task is None else list(task.references if references is None else references)
    for name in names:
        one_of("a reference", name, () if task is None else task.references)
    if batch.has_vectors:
        if by != "subgroup":
            raise InputError("vectors are evaluated by part of the answer and position; leave out `by`")
        return _evaluate_by_part(model, task, batch, names)
    if not isinstance(by, str):
        return _evaluate_by_positions(model, task, batch, names, by, chunk or SKILL_CHUNK)
    one_of("by", by, ("subgroup", "skill"))
    if task is None:
        raise InputError(f"a task is needed to evaluate by {by}; give one, or sets of positions as `by`")
    if by == "skill":
        skills = {"skill": {ALL_SEQUENCES: batch.scored, **task.skills(batch)}}
        return _evaluate_by_positions(model, task, batch, names, skills, chunk or SKILL_CHUNK).assign_attrs(
            task=repr(task)
        )
    return _evaluate_by_subgroup(model, task, batch, names, chunk or CHUNK, exact or {})


def _evaluate_by_subgroup(
    model: HookedModel,
    task: Task,
    batch: Batch,
    references: Sequence[str],
    size: int,
    exact: Mapping[str, Float[Tensor, "batch pos d_vocab"]],
) -> xr.Dataset:
    groups = {ALL_SEQUENCES: torch.ones(len(batch), dtype=torch.bool), **task.subgroups(batch)}
    positions = batch.scored.any(0).nonzero()[:, 0]
    weights = torch.stack([_row_weights(batch, rows) for rows in groups.values()])
    sums = _Sums()
    check_task(model, task, batch)
    for rows, where in _parts(model, batch.scored, references, size):
        share = weights[:, rows, None] * where[:, positions]
        known = {name: predicted[rows] for name, predicted in exact.items()}
        for name, values in _measure_places(model, task, batch.select(rows), references, where, whole=known).items():
            sums.add(name, share[:, None], values[..., positions])
    coords = {
        "subgroup": list(groups),
        "pos": positions.tolist(),
        **batch.labels(pos=positions.tolist()),
        **({"reference": list(references)} if references else {}),
    }
    attrs = {"loss_unit": "nats", "task": repr(task)}
    counts = {"n": ("subgroup", [int(rows.sum()) for rows in groups.values()])}
    return xr.Dataset({**sums.variables(), **counts}, coords=coords, attrs=attrs)


def _evaluate_by_positions(
    model: HookedModel, task: Task | None, batch: Batch, references: Sequence[str], by: Positions, size: int
) -> xr.Dataset:
    ((dim, masks),) = by.items()
    check_fits(model, batch) if task is None else check_task(model, task, batch)
    tested = torch.stack([mask.to(batch.scored.device) for mask in masks.values()]).any(0)
    found: dict[str, Tensor] = {}
    for rows, where in _parts(model, tested, references, size):
        for name, values in _measure_places(model, task, batch.select(rows), references, where).items():
            everywhere = found.setdefault(name, values.new_full((len(values), *tested.shape), torch.nan))
            everywhere[:, rows] = torch.where(where.to(values.device), values, everywhere[:, rows])
    arrays = {name: to_numpy(skill_means(values, masks)) for name, values in found.items()}
    own = {name: (dim, arrays[name][0]) for name in ("accuracy", "loss")}
    beside = {name: (("reference", dim), values) for name, values in arrays.items() if name not in own}
    return xr.Dataset(
        {**own, **beside, "n": (dim, [int(mask.sum()) for mask in masks.values()])},
        coords={dim: list(masks), **({"reference": list(references)} if beside else {})},
        attrs={"unit": "loss, floor and kl: nats; accuracy: share", "n_sequences": len(batch)},
    )


@torch.no_grad()
def _evaluate_by_part(model: HookedModel, task: Task | None, batch: Batch, names: Sequence[str]) -> xr.Dataset:
    outputs, targets = predicted_vectors(model, batch), batch.targets.double()
    positions = batch.scored.any(0).nonzero()[:, 0]
    weights = torch.ones(len(batch)) if batch.weights is None else batch.weights
    shares = (weights.to(outputs)[:, None] * batch.scored)[:, positions]
    slices = {ALL_SEQUENCES: slice(None), **batch.parts}

    def errors(one: Tensor, other: Tensor) -> list[list[float]]:
        each = [metrics.squared_error(one[..., part], other[..., part])[:, positions] for part in slices.values()]
        means = [(shares * values.nan_to_num()).sum(0) / shares.sum(0) for values in each]
        return [mean.tolist() for mean in means]

    coords = {"part": list(slices), "pos": positions.tolist(), **batch.labels(pos=positions.tolist())}
    attrs = {"loss_unit": batch.loss_unit, "n": len(batch), "task": repr(task)}
    result = xr.Dataset({"loss": (("part", "pos"), errors(outputs, targets))}, coords=coords, attrs=attrs)
    if not names or task is None:
        return result
    dims, predicted = ("reference", "part", "pos"), [task.reference(batch, name) for name in names]
    compared = {"floor": targets, "distance": outputs}
    beside = {name: (dims, [errors(each, other) for each in predicted]) for name, other in compared.items()}
    return result.assign(beside).assign_coords(reference=names)


class _Sums:
    """Weighted means (of `max_abs_error` the maximum) of values that come in chunks; NaN stays out."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._max = torch.tensor(-torch.inf, dtype=torch.double)

    def add(
        self,
        name: str,
        share: Float[Tensor, "subgroup 1 batch pos"],
        values: Float[Tensor, "row batch pos"],
    ) -> None:
        """Count a chunk of sequences in."""
        counts = (share > 0) & ~values.isnan()
        weighted = (torch.where(counts, part, 0.0) for part in (share * values, share))
        parts = torch.stack([*(part.sum(2) for part in weighted), share.sum(2).expand(-1, len(values), -1)])
        self._sums[name] = self._sums.get(name, 0) + parts
        if name == "max_abs_error":
            self._max = torch.maximum(self._max, torch.where(counts, values, -torch.inf).amax(2))

    def variables(self) -> dict[str, tuple[tuple[str, ...], ndarray]]:
        """Dimensions and values of every variable."""
        by_reference = ("reference", "subgroup", "pos")
        arrays = {name: total / weight for name, (total, weight, _) in self._sums.items()}
        if "kl" in arrays:
            arrays["max_abs_error"] = self._max.where(self._max >= 0, torch.nan)
            arrays["defined"] = self._sums["kl"][1] / self._sums["kl"][2]
        result: dict[str, tuple[tuple[str, ...], ndarray]] = {
            name: (by_reference, to_numpy(array.transpose(0, 1))) for name, array in arrays.items()
        }
        return result | {name: (by_reference[1:], result[name][1][0]) for name in ("accuracy", "loss")}


@check_arguments
def evaluate_splits(
    model: ModelLike,
    task: Task,
    *,
    splits: Sequence[str] = ("train", "test"),
    by: Literal["subgroup", "skill"] = "subgroup",
    n_samples: int | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """`evaluate` on training and test mappings, along `split`.

    Without `n_samples` all sequences are enumerated, exactly. Otherwise as many are drawn from the seed's stream
    `evaluation`.

    >>> found = ms.analyses.evaluate_splits(model, task, splits=["test"], n_samples=64)
    >>> found.loss.dims
    ('split', 'subgroup', 'pos')
    """
    model = resolve_model(model)

    def batch(split: str) -> Batch:
        if n_samples is None:
            return task.enumerate(split=split)
        return task.sample(n_samples, split=split, generator=generator(seed, "evaluation", split))

    results = [evaluate(model, task, batch(split), by=by) for split in splits]
    how = "enumerated" if n_samples is None else f"{n_samples} samples"
    return xr.concat(results, xr.DataArray(list(splits), dims="split", name="split")).assign_attrs(sequences=how)


@lru_cache(maxsize=4)
def every_sequence(task: Task, split: str = "test") -> Batch:
    """All sequences over the mappings of a split, kept for the next time.

    >>> len(ms.analyses.every_sequence(task)) > len(batch)
    True
    """
    return task.enumerate(split=split)


@memoize
def accuracy_by_skill(subject: Subject, *, split: str = "test") -> Mapping[str, float]:
    """Share of right answers among all sequences of the split, by skill; NaN for a skill that none of them tests.

    Raises InputError where the model is too small for the task, or the task cannot enumerate its sequences.

    >>> sorted(ms.analyses.accuracy_by_skill(ms.models.subject(run)))
    ['elimination', 'recall']
    """
    batch = every_sequence(subject.task, split)
    skills = subject.task.skills(batch)
    tested = torch.stack([*skills.values(), torch.zeros_like(batch.scored)]).any(0)
    predicted = log_probs(subject.model, subject.task, batch, where=tested)
    right = metrics.is_correct(predicted, batch.targets).double()
    return MappingProxyType(dict(zip(skills, skill_means(right, skills).tolist(), strict=True)))


@check_arguments
def lowest_skill_accuracy(subject: Subject, skills: Sequence[str] | None = None) -> float:
    """The smallest accuracy among some skills on unseen mappings (none given: among all), which a gate looks at.

    >>> ms.analyses.lowest_skill_accuracy(ms.models.subject(run)) > 0.9
    True
    """
    found = accuracy_by_skill(subject)
    return float(torch.tensor([found[name] for name in (found if skills is None else skills)]).min())


@lru_cache(maxsize=4)
def subgroup_sequences(task: Task, *, split: str = "test", subgroup: str = ALL_SEQUENCES) -> Batch:
    """All sequences of a subgroup over the mappings of a split, kept for the next time.

    Raises InputError where the task has no such subgroup, or cannot enumerate its sequences.

    >>> repeats = ms.analyses.subgroup_sequences(task, subgroup="repeat")
    >>> repeats.latents["is_repeat"].all().item()
    True
    """
    batch = every_sequence(task, split)
    groups = task.subgroups(batch)
    one_of("subgroup", subgroup, (ALL_SEQUENCES, *groups))
    return batch if subgroup == ALL_SEQUENCES else batch.select(groups[subgroup])


@memoize
def evaluate_subject(subject: Subject, *, split: str = "test", subgroup: str = ALL_SEQUENCES) -> xr.Dataset:
    """The result of `evaluate` for a model on `sequences`.

    >>> ms.analyses.evaluate_subject(ms.models.subject(run)).loss.dims
    ('subgroup', 'pos')
    """
    task = subject.task
    batch = subgroup_sequences(task, split=split, subgroup=subgroup)
    return evaluate(subject.model, task, batch, exact=_exact(task, split, subgroup))


@lru_cache(maxsize=4)
def _exact(task: Task, split: str, subgroup: str) -> Mapping[str, Tensor]:
    """The predictions of every exact predictor for `sequences`: models of one task are compared with the same."""
    batch = subgroup_sequences(task, split=split, subgroup=subgroup)
    return {name: task.reference(batch, name) for name in task.references}


def mean_loss(evaluation: xr.Dataset, subgroup: str = ALL_SEQUENCES) -> float:
    """Loss of a subgroup in nats, the mean over the scored positions.

    >>> found = ms.evaluate(model, task, batch)
    >>> ms.analyses.mean_loss(found) > 0
    True
    """
    return float(evaluation.loss.sel(subgroup=subgroup).mean("pos"))


def _row_weights(batch: Batch, rows: Tensor) -> Float[Tensor, " batch"]:
    """Weights of the rows of a subgroup, adding up to one; all NaN where there are none."""
    weights = rows.double()
    if batch.weights is not None and (batch.weights * weights).sum() > 0:
        weights = weights * batch.weights.double()
    return weights / weights.sum()


def _parts(
    model: HookedModel, where: Bool[Tensor, "batch pos"], references: Sequence[str], size: int
) -> list[tuple[slice, Bool[Tensor, "rows pos"]]]:
    per_logit = LOG_PROBS + (_COMPARED if references else 0)
    return split_into_passes(model, where, bytes_per_logit=per_logit, most_rows=size)


@torch.no_grad()
def _measure_places(
    model: HookedModel,
    task: Task | None,
    batch: Batch,
    references: Sequence[str],
    where: Bool[Tensor, "batch pos"],
    *,
    whole: Mapping[str, Float[Tensor, "batch pos d_vocab"]] | None = None,
) -> dict[str, Float[Tensor, "row batch pos"]]:
    """Every measure at some places, NaN where a reference is undefined; the first axis holds the references.

    `whole`: what `evaluate` gives by subgroup, with what is known of references.
    """
    predicted = to_log_probs(logits_by_engine(model, batch.inputs, where))
    predicted = predicted if task is None else predicted[:, : n_outputs(task)]
    here = where.to(batch.targets.device)
    targets = batch.targets[here]
    known, by_place = whole or {}, whole is None
    right = expected_accuracy(predicted, targets) if by_place else metrics.is_correct(predicted, targets).double()
    each = {"accuracy": right[None], "loss": -metrics.at_target(predicted, targets)[None]}
    by_reference = []
    for name in references:
        assert task is not None
        reference = (known[name] if name in known else task.reference(batch, name))[here]
        found = {
            "floor": -metrics.at_target(reference, targets).log(),
            "best_accuracy": expected_accuracy(reference, targets),
            "kl": metrics.kl_divergence(reference, predicted),
        }
        if not by_place:
            errors = (predicted.exp() - reference).abs()[..., list(task.answers)]
            found |= {"mean_abs_error": errors.mean(-1), "max_abs_error": errors.amax(-1)}
        by_reference.append(found)
    if by_reference:
        each |= {name: torch.stack([values[name] for values in by_reference]) for name in by_reference[0]}
    return {name: torch.stack([scatter(row, where) for row in rows]) for name, rows in each.items()}


def expected_accuracy(
    predicted: Float[Tensor, "*rows d_vocab"], targets: Int[Tensor, "*rows"]
) -> Float[Tensor, "*rows"]:
    """Probability that the best guess is right, a random one where several are equally good.

    `predicted` are probabilities, or anything that grows with them.

    >>> uniform = torch.full((2, 4), 0.25)
    >>> ms.analyses.expected_accuracy(uniform, torch.tensor([0, 3])).tolist()
    [0.25, 0.25]
    """
    best = (predicted == predicted.amax(-1, keepdim=True)).double()
    return metrics.at_target(best, targets) / best.sum(-1)
