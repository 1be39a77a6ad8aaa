"""Runs of one configuration, and the numbers that are shown of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mnemoscope.core.presets import changes_text
from mnemoscope.models.glance import Glance
from mnemoscope.report.tables import ranges, rounded

LOSSES = {"loss, training": "train_loss", "loss, unseen": "test_loss"}
"""Measure by column."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that differ in the seed only."""

    runs: Sequence[Glance]
    """One run per seed."""
    changed: str
    """Differences from the preset, in words."""

    @property
    def label(self) -> str:
        """Preset and recipe."""
        return self.runs[0].label

    @property
    def seeds(self) -> str:
        """The seeds in words."""
        return ranges(run.seed for run in self.runs)

    @property
    def states(self) -> str:
        """The number of runs in each state."""
        states = [run.state for run in self.runs]
        counts = {state: states.count(state) for state in dict.fromkeys(states)}
        return (
            states[0] if len(counts) == 1 else ", ".join(f"{n}\N{NO-BREAK SPACE}{state}" for state, n in counts.items())
        )

    def last(self, measure: str) -> list[float]:
        """The last values of the runs that have ended; of all if none has."""
        ended = [run for run in self.runs if run.finished] or self.runs
        return [value for run in ended if (value := run.last(measure)) is not None]


def grouped(runs: Sequence[Glance]) -> list[Group]:
    """Runs by configuration, in their order.

    Where a seed of a configuration occurs in several directories, each directory of runs is a separate group; where it
    occurs several times in one directory, so is each of its runs there.
    """
    groups: list[list[Glance]] = []
    for run in runs:
        alike = (members for members in groups if _of_one_configuration(members[0], run))
        members = next(alike, None)
        groups.append([run]) if members is None else members.append(run)
    apart = [part for members in groups for part in _without_repeats(members)]
    return [Group(runs=members, changed=changes_text(members[0].spec)) for members in apart]


def measures(runs: Sequence[Glance]) -> dict[str, str]:
    """Measure by column: the accuracy of every skill on unseen sequences, or losses of parts if none was logged."""
    names = list(dict.fromkeys(name for run in runs for name in run.progress))
    skills = [name for name in names if name.startswith("test_") and not name.startswith("test_loss")]
    parts = [name for name in names if name.startswith("test_loss_")]
    prefix = "test_" if skills else "test_loss_"
    return {name.removeprefix(prefix).replace("_", " "): name for name in skills or parts}


def number(value: float | None) -> str:
    """A value as text; a dash where there is none."""
    if value is None:
        return "–"
    return rounded(value, ".3f" if abs(value) >= 0.01 or value == 0 else ".2g") if math.isfinite(value) else str(value)


def mean_and_range(values: Sequence[float]) -> tuple[float | None, str]:
    """The mean over seeds, and the range in words, which is empty for a single value."""
    if not values:
        return None, ""
    mean = sum(values) / len(values)
    return mean, f"[{number(min(values))}, {number(max(values))}]" if len(values) > 1 else ""


def _of_one_configuration(one: Glance, other: Glance) -> bool:
    return one.label == other.label and one.spec.replicates(other.spec)


def _without_repeats(members: Sequence[Glance]) -> list[list[Glance]]:
    if len({run.seed for run in members}) == len(members):
        return [list(members)]
    by_place: dict[object, list[Glance]] = {}
    for run in members:
        by_place.setdefault(run.path.parent, []).append(run)
    if len(by_place) == 1:
        return [[run] for run in members]
    return [part for place in by_place.values() for part in _without_repeats(place)]
