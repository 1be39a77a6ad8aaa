"""The common ground of analyses that compare clean and corrupted sequences: pairs, metrics, and results by skill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mnemoscope as ms
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.records.record import PairOptions, Results, xr


@dataclass(frozen=True, kw_only=True)
class PatchSweepOptions(PairOptions):
    """Options of sweeps of patches over pairs."""

    metrics: tuple[str, ...] = ()
    """logit_diff (the default), log_prob, prob, accuracy, kl; of vectors error_diff, squared_error, distance."""


def check_metrics(options: PatchSweepOptions) -> None:
    """Refuse unknown metrics."""
    metrics("--metrics", options.metrics)


def metrics(option: str, names: Sequence[str]) -> list[Any]:
    """The metrics of these names, of tokens or of vectors; a refusal of a name mentions the option."""
    known = {metric.name: metric for metric in (*ms.core.metrics.METRICS, *ms.core.metrics.VECTOR_METRICS)}
    for name in names:
        one_of(option, name, known)
    return [known[name] for name in names]


def pairs_by_skill(run: ms.Run, options: PairOptions, batch: ms.Batch) -> dict[str, ms.PromptPairs]:
    """Clean and corrupted sequences of every skill in the options; `all` of a task without skills."""
    task, seed = run.spec.task, run.spec.seed
    if not task.corruptions:
        raise ms.InputError(f"pairs need a task with corruptions; {task.name} has none: write its `corrupt`")
    kind = task.corruptions[0] if options.corruption is None else options.corruption
    one_of("--corruption", kind, task.corruptions)
    masks = task.skills(batch)
    for skill in options.skills:
        one_of("--skills", skill, masks)
    if not masks:
        return {"all": ms.PromptPairs.from_task(task, batch, kind=kind, seed=seed)}
    chosen = options.skills or tuple(masks)
    return {skill: ms.PromptPairs.from_task(task, batch, kind=kind, skill=skill, seed=seed) for skill in chosen}


def add_effects(values: xr.Dataset) -> xr.Dataset:
    """Measurements of patches, and their effects; NaN where a run does not tell the sequences apart."""
    return xr.merge([values, ms.analyses.effects(values, refuse=False)], combine_attrs="override")


def name_by_skill(name: str, results: Results) -> dict[str, xr.Dataset]:
    """Skill to the result `<name>_<skill>`."""
    return {key.removeprefix(f"{name}_"): result for key, result in results.items() if key.startswith(f"{name}_")}


def describe_costliest(by_skill: Mapping[str, xr.Dataset], *, what: str) -> str:
    """The single patch that costs most of the difference between clean and corrupted prompts, by skill.

    `by_skill` has `ratio` over direction, metric and the swept axes, along `seed`. `what` is patched, such as
    "resid_pre".
    """
    from mnemoscope.core import positions
    from mnemoscope.report.findings import LEAST, largest

    found = []
    for skill, result in by_skill.items():
        metric = result.metric.values[0]
        top = largest(result.ratio.sel(direction="noising", metric=metric, drop=True))
        if top is not None and top.mean >= LEAST:
            place = ", ".join(
                value if name == "edge" else f"{positions.axis_word(name)} {value}" for name, value in top.place.items()
            )
            found.append(
                f"for {skill} at {place} ({ms.report.mean_with_range(top.values, '.2f')} of the difference is lost)"
            )
    if not found:
        return f"No single patch of {what} loses {LEAST:g} of the difference or more."
    return f"Patching {what} into the clean run costs most {'; '.join(found)}."


def heads_with_roles(run: ms.Run) -> xr.Dataset:
    """The head or MLP that has each role, to be kept beside results by edge."""
    named = ms.analyses.last_roles(run)
    return xr.Dataset({"component": ("role", list(named))}, coords={"role": list(named.values())})


def edges_by_role(results: Results) -> dict[str, Any]:
    """Results of all seeds with the edges of all of them beside each other, named by the `roles` among the results."""
    from mnemoscope.analyses.edge_roles import edges_of_seeds

    component = results["roles"].component
    return {
        name: edges_of_seeds(result, component) if "edge" in result.dims else result for name, result in results.items()
    }


FEATURES = (
    "Features of a dictionary are parts in the place of the MLP that it reconstructs: L0F3 reads what the MLP reads, "
    "and writes its direction. L0 error is all that no feature writes, with the bias of the decoder and a skip "
    "connection. A change of what one of these reads changes this one alone. Pictures show the largest edges."
)
OWN_NUMBERS = (
    "A feature has the number of the dictionary of its seed: L0F3 of two seeds are two features, and a mean over seeds "
    "of their edges says nothing. Look at one seed, or at sums over features."
)


def feature_notes(by_skill: Mapping[str, xr.Dataset]) -> list[str]:
    """Notes on edges of features, where some are among the results."""
    first = next(iter(by_skill.values()))
    if not any(" error → " in name for name in first.edge.values.tolist()):
        return []
    return [FEATURES, *([OWN_NUMBERS] if first.sizes["seed"] > 1 else [])]


def refuse_undefined(label: str, values: Mapping[str, xr.DataArray], *, missing: str, option: str) -> None:
    """Refuse results in which no seed has a value, since no run tells the sequences apart."""
    if all(bool(each.isnull().all()) for each in values.values()):
        raise InputError(
            f"no run of {label} tells clean from corrupted sequences apart: there is {missing}; take another "
            f"--corruption, {option}, --step or other runs"
        )
