"""Results put together: like ones along training steps or seeds, unlike ones side by side.

Runs that differ in the seed only are concatenated along `seed`, checkpoints of one run along `step`. Runs of unlike
configurations are never concatenated, since a mean over them would mean nothing: they stand beside each other in a
tree. Nothing is padded, reordered or dropped: results that do not fit are refused. One exception: a run that stopped
early is its last model from then on, so its values are carried forward along `step`.

Along `step` heads may be aligned by role. Roles are chosen once per run, from its last checkpoint, so that a role names
the same head at every step: what the head of that role did before it was needed can be seen. The choice knows the end
of training, so a head of this role did not have to be recognisable early. Checkpoints show a run only where they were
kept. Between two of them anything may have happened.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
import xarray as xr

from mnemoscope.analyses.roles import Result, by_role
from mnemoscope.core import positions
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.runtime import progress
from mnemoscope.models.run import Run, by_label


@check_arguments
def over_steps(
    run: Run,
    analyse: Callable[[HookedModel], Result],
    *,
    steps: Sequence[int] | None = None,
    name_heads: Callable[[Run], Mapping[str, str]] | None = None,
    device: torch.device | str = "cpu",
) -> Result:
    """An analysis of every checkpoint of a run, one model in memory at a time.

    `analyse` is any function of a model that returns a labelled result; use the same prompts for every step.
    `name_heads` is called once; its component-to-role mapping rearranges every result (`by_role`). `last_roles` is one;
    without it results stay over heads. Models go to `device`. Raises InputError where a checkpoint does not exist, or
    the results cannot be put together.

    Returns the results along `step`, ascending.

    >>> found = ms.analyses.over_steps(run, lambda model: ms.analyses.head_scores(model, batch), steps=run.steps[:2])
    >>> found.score.dims
    ('step', 'score_name', 'layer', 'head')
    """
    if not run.steps:
        raise InputError(f"{run.path} has no checkpoint yet; train it first")
    chosen = run.steps if steps is None else sorted(set(steps))
    if not chosen:
        raise InputError(f"steps must name at least one checkpoint of {run.path}; got none")
    for step in chosen:
        one_of(f"the step of {run.path}", step, run.steps)
    named = None if name_heads is None else name_heads(run)
    results = {}
    for step in progress(chosen):
        result = analyse(run.hooked(step, device=device))
        results[step] = result if named is None else by_role(result, named)
    return concatenate("step", results)


@check_arguments
def over_runs(runs: Sequence[Run], analyse: Callable[[Run], Result]) -> Result:
    """An analysis of runs that differ in the seed only, one run at a time, along `seed`; errors as for `along_seed`.

    `analyse` may call `over_steps`, `Run.metrics` or an analysis of the run. For several processes:
    `along_seed(runs, analyse_many(runs, analyse, jobs=...))` with `ms.run.analyse_many`; `analyse` is then a
    function of a module.

    >>> runs = ms.find_runs("zoo:v3-quick")[:2]
    >>> ms.analyses.over_runs(runs, lambda run: ms.analyses.head_scores(run, batch)).score.dims
    ('seed', 'score_name', 'layer', 'head')
    """
    return along_seed(runs, map(analyse, runs))


@check_arguments
def along_seed(runs: Sequence[Run], results: Iterable[Result]) -> Result:
    """Results of runs that differ in the seed only, one per run, along `seed`.

    Where training may stop early, results along `step` cover the steps of all runs; at a step that a run was not
    measured at it has its last value before. Raises InputError where the runs are of several configurations, a seed
    occurs twice, or the results differ in more than their values.

    >>> runs = ms.find_runs("zoo:v3-quick")[:2]
    >>> ms.analyses.along_seed(runs, [each.metrics().test_loss for each in runs]).dims
    ('seed', 'step')
    """
    labels = list(by_label(runs))
    if len(labels) != 1:
        given = f"those of {', '.join(labels)}; put them side_by_side" if labels else "none"
        raise InputError(f"seeds are put together of runs of one configuration; got {given}")
    found = dict(zip((run.spec.seed for run in runs), results, strict=True))
    return concatenate("seed", found if runs[0].spec.recipe.stop_at is None else _carried_forward(found))


def _carried_forward(results: Mapping[int, Result]) -> dict[int, Result]:
    """Results along `step` at the steps of all of them; others as they are."""
    along_step = [result.step.values for result in results.values() if "step" in result.dims]
    if not along_step:
        return dict(results)
    steps = np.unique(np.concatenate(along_step))
    return {seed: result.reindex(step=steps, method="ffill") for seed, result in results.items()}


@check_arguments
def over_seeds(runs: Sequence[Run], results: Sequence[Mapping[str, xr.Dataset]]) -> dict[str, xr.Dataset]:
    """Results of runs that differ in the seed only, concatenated along `seed`; what some runs lack is left out.

    Axes of positions get the names that the task has for them, if they have none yet.

    >>> runs = ms.find_runs("zoo:v3-quick")[:2]
    >>> results = [{"scores": ms.analyses.head_scores(each, batch)} for each in runs]
    >>> ms.analyses.over_seeds(runs, results)["scores"].score.dims
    ('seed', 'score_name', 'layer', 'head')
    """
    names = [name for name in results[0] if all(name in result for result in results)]
    places = positions.position_names(runs[0].spec.task)
    return {
        name: positions.add_position_names(along_seed(runs, [result[name] for result in results]), places)
        for name in names
    }


def concatenate(dim: str, results: Mapping[int, Result]) -> Result:
    """Results concatenated along a new dimension, whose coordinate is their key.

    Results are datasets, or arrays of one name. Attributes that all have in common stay. Coordinates that differ (the
    component behind a role) get the dimension. Raises InputError where there is none, one is no labelled result or has
    the dimension already, or their variables, dimensions or coordinates differ.

    >>> scores = {step: ms.analyses.head_scores(run.model(step), batch) for step in run.steps[:2]}
    >>> ms.analyses.concatenate("step", scores).score.dims
    ('step', 'score_name', 'layer', 'head')
    """
    if not results:
        raise InputError(f"results along {dim} need at least one; got none")
    first = next(iter(results.items()))
    for key, result in results.items():
        if not isinstance(result, xr.Dataset | xr.DataArray):
            raise InputError(f"the result of {dim} {key} must be a Dataset or DataArray; got {type(result).__name__}")
        if dim in result.dims or dim in result.coords:
            raise InputError(
                f"the result of {dim} {key} has a dimension or coordinate {dim} already; drop or rename it"
            )
        _check_alike(dim, first, (key, result))
    return xr.concat(  # pyright: ignore[reportCallIssue]
        list(results.values()),  # pyright: ignore[reportArgumentType]
        xr.DataArray(np.array(list(results)), dims=dim, name=dim),
        data_vars="all",
        coords="different",
        compat="equals",
        join="exact",
        combine_attrs="drop_conflicts",
    )


def side_by_side(results: Mapping[str, xr.Dataset]) -> xr.DataTree:
    """Results of unlike configurations by label; nothing is aligned or averaged.

    Raises InputError where a label has a slash in it, which would make it a path.

    >>> found = ms.analyses.side_by_side({"one": ms.analyses.head_scores(model, batch)})
    >>> list(found)
    ['one']
    """
    for label in results:
        if "/" in label or not label:
            raise InputError(f"a label of a tree must be a word without a slash; got {label!r}")
    return xr.DataTree.from_dict(dict(results))


def _check_alike(dim: str, first: tuple[int, Result], other: tuple[int, Result]) -> None:
    """Refuse results whose variables, dimensions or coordinates differ."""
    pair = f"the results of {dim} {first[0]} and {dim} {other[0]}"
    for what, of in (("variables", _names), ("dimensions", lambda result: sorted(map(str, result.dims)))):
        ours, theirs = of(first[1]), of(other[1])
        if ours != theirs:
            raise InputError(f"{pair} must have the same {what}; got {ours} and {theirs}")
    for name in map(str, first[1].dims):
        ours, theirs = (result[name].to_numpy().tolist() for result in (first[1], other[1]))
        if ours != theirs:
            way = "; choose steps that all runs have" if name == "step" else ""
            raise InputError(f"{pair} must have the same coordinate {name}; got {ours} and {theirs}{way}")


def _names(result: xr.Dataset | xr.DataArray) -> list[str]:
    return sorted(map(str, result.data_vars if isinstance(result, xr.Dataset) else [result.name]))
