"""What the report shows of one trained model: all its analyses, and which skills count as learned."""

from collections.abc import Mapping

import torch
import xarray as xr

from mnemoscope import HookedModel, InputError, Run, Task, generator
from mnemoscope.analyses import ablate_by_role, by_role, evaluate_splits, named_in
from mnemoscope.systems.tiny_recall.analyses.attention_shares import attention_patterns, attention_shares
from mnemoscope.systems.tiny_recall.analyses.conflict import conflict
from mnemoscope.systems.tiny_recall.analyses.published import N_SAMPLES
from mnemoscope.systems.tiny_recall.tasks import MAX_ENUMERATED, PermutationLookup

LEARNED = 0.99
"""Accuracy on unseen mappings from which a skill counts as learned."""


def lookup_task(task: Task) -> PermutationLookup:
    """The task, if it is the permutation lookup.

    Raises:
        InputError: It is another one.
    """
    if not isinstance(task, PermutationLookup):
        raise InputError(f"this analysis reads runs of {PermutationLookup.name}; got a run of {task.name}")
    return task


def examine(model: HookedModel, task: PermutationLookup, *, seed: int) -> dict[str, xr.Dataset]:
    """All analyses of one model.

    Args:
        model: Any hooked model.
        task: With a split chosen; V small enough to enumerate.
        seed: Prompts come from this seed's streams.

    Returns:
        `evaluation` (enumerated), `sampled` (the published number of samples), `conflict`, `ablation` (by role),
        `attention` (with dimension `role` in place of `head`) and `examples` (patterns on one sequence of each
        subgroup).

    Raises:
        InputError: V is too large to enumerate, or the model too small.
    """
    if task.n_values > MAX_ENUMERATED:
        raise InputError(f"this needs task.n_values <= {MAX_ENUMERATED}; got {task.n_values}; evaluate samples instead")
    ablation = ablate_by_role(model, task, seed=seed)
    batch = task.monitor(512, split="test", generator=generator(seed, "attention"))
    return {
        "evaluation": evaluate_splits(model, task),
        "sampled": evaluate_splits(model, task, n_samples=N_SAMPLES, seed=seed),
        "conflict": conflict(model, task),
        "ablation": ablation,
        "attention": by_role(attention_shares(model, task, batch), named_in(ablation)),
        "examples": attention_patterns(model, task, batch.select(torch.tensor([0, 512]))),
    }


def analyse_run(run: Run) -> dict[str, xr.Dataset]:
    """`examine` of a run's last checkpoint, and its training curve as `metrics`."""
    return {**examine(run.model(), lookup_task(run.spec.task), seed=run.spec.seed), "metrics": run.metrics()}


def skills(results: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Accuracy of each skill on unseen mappings, per seed, and whether it counts as learned.

    Returns:
        `accuracy` and `learned` over (seed, skill): elimination on fresh sequences, recall on repeats, both in the
        last slot.
    """
    last = results["evaluation"].accuracy.sel(split="test").isel(pos=-1, drop=True)
    accuracy = last.sel(subgroup=["fresh", "repeat"]).rename(subgroup="skill")
    accuracy = accuracy.assign_coords(skill=["elimination", "recall"])
    return xr.Dataset({"accuracy": accuracy, "learned": accuracy >= LEARNED})
