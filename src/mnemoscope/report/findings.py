"""Findings of analyses, one sentence each, made from the numbers; a page opens with them.

A sentence names the largest result with its mean [range] over seeds, or says that there is none. It ranks parts by the
analysis' own measure, and says no more than that measure shows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import xarray as xr

from mnemoscope.core import positions
from mnemoscope.core.numerics import mean_interval
from mnemoscope.core.renamed import old_names
from mnemoscope.report.ablation import ablation_quantity, damage
from mnemoscope.report.tables import interval, mean_with_range, pluralise

LEAST = 0.01
"""A share of accuracy or of a difference below which a part is not named, or a rise of the squared error."""
MOST = 0.9
"""Share of a whole that counts as nearly all of it."""


@dataclass(frozen=True, kw_only=True)
class LargestResult:
    """The place of the largest result in the mean over seeds: words for the label of each dimension, values by seed."""

    place: Mapping[str, str]
    values: xr.DataArray

    @property
    def mean(self) -> float:
        """The mean over the seeds that have a value."""
        return float(self.values.mean("seed"))


def largest(values: xr.DataArray) -> LargestResult | None:
    """The place of the largest mean over seeds over all other dimensions; None where there is nothing but NaN."""
    mean = values.mean("seed")
    if not bool(mean.notnull().any()):
        return None
    at = {name: int(index) for name, index in mean.argmax(mean.dims).items()}  # pyright: ignore[reportAttributeAccessIssue]
    chosen = values.isel(at)
    dims = [str(name) for name in mean.dims]
    labels = {
        name: positions.axis_labels(values, name)[at[name]] if name in values.coords else str(at[name]) for name in dims
    }
    return LargestResult(place=labels, values=chosen)


def describe_learned_skills(gate: xr.Dataset) -> str:
    """The learned skills by `analyses.gate`, along `seed`, and in how many seeds; empty where all have learned all."""
    found, n = gate.learned, gate.sizes["seed"]
    if bool(found.all()):
        return ""
    if not bool(found.any()):
        missed = (~gate.better).any([dim for dim in gate.better.dims if dim != "baseline"])
        names = ", ".join(str(name) for name in gate.baseline.values[missed.values])
        return (
            f"No model beats every baseline of its task ({pluralise(n, 'seed')}; not beaten: {names}), so these "
            "numbers do not tell how the task is done."
        )
    counts = {str(skill): int(found.sel(skill=skill).sum()) for skill in found.skill.values}
    each = [f"{skill} in {count or 'none'} of {pluralise(n, 'seed')}" for skill, count in counts.items()]
    said = ", ".join(each) if len(each) > 1 else f"the task {each[0].partition(' ')[2]}"
    return f"Learned, better than a constant guess and the exact baselines: {said}. What follows is about these."


def describe_removal(ablation: xr.Dataset, *, least: float = LEAST) -> str:
    """The part that every skill needs most, by mean ablation where that was tried.

    `ablation` is over kind, role and skill, along `seed`. No part is named for damage below `least`.
    """
    kinds = ablation.kind.values.tolist()
    kind = "mean" if "mean" in kinds else kinds[0]
    lost, change = damage(ablation.sel(kind=kind)), ablation_quantity(ablation).change
    found, spared = [], []
    for skill in map(str, ablation.skill.values):
        top = largest(lost.sel(skill=skill))
        if top is None or top.mean < least:
            spared.append(skill)
        else:
            part = top.place["role"].removeprefix("the ")
            found.append(f"{skill} needs the {part} most ({mean_with_range(top.values, '.2f')} {change})")
    sentences = [f"By {kind} ablation {'; '.join(found)}."] if found else []
    if spared:
        sentences.append(f"No single part costs {' or '.join(spared)} {least:g} or more.")
    return " ".join(sentences)


def describe_final_accuracy(metrics: xr.Dataset) -> str:
    """The accuracy of every skill on unseen sequences at the last step, or the loss; `metrics` are along `seed`."""
    last = metrics.isel(step=-1)
    skills = [str(name) for name in last.data_vars if str(name).startswith("test_") and "loss" not in str(name)]
    if not skills:
        return f"At the end of training the loss on unseen sequences is {mean_with_range(last.test_loss, '.3f')}."
    found = (f"{name.removeprefix('test_').replace('_', ' ')} {mean_with_range(last[name], '.2f')}" for name in skills)
    return f"Accuracy on unseen sequences at the end of training: {', '.join(found)}."


def describe_rise(values: xr.DataArray, name: str) -> str:
    """The step, along `seed`, at which a measure of training has risen half way from its first to its last value."""
    first, last = values.isel(step=0), values.isel(step=-1)
    there = values >= (first + last) / 2
    steps = there.step.isel(step=there.argmax("step"))
    return (
        f"{name[0].upper()}{name[1:]} goes from {mean_with_range(first, '.2f')} to {mean_with_range(last, '.2f')}, "
        f"half of the way by step {mean_with_range(steps, '.0f')}."
    )


def describe_growth(model: str, amount: str, size: str, exponents: xr.DataArray, *, expected: float) -> str:
    """The power of `size` with which `amount` grows, and whether it is the expected one (of theory or a publication).

    `model` says whose amount it is. `exponents` are over draw; NaN where a draw has none.
    """
    mean, low, high = (float(end) for end in mean_interval(exponents))
    called = f"{model[0].upper()}{model[1:]}"
    if not low <= high:
        return f"{called}: too few draws have an exponent."
    held = "holds" if low <= expected <= high else "leaves out"
    draws = pluralise(int(exponents.count()), "draw")
    return (
        f"{called}: {amount} grows with {size} to the power of {interval(mean, low, high, '.2f')}, mean over {draws} "
        f"with its 95 % interval, which {held} the expected {expected:g}."
    )


__getattr__ = old_names(__name__)
