"""The measures of runs while they train: losses and accuracies on fixed batches, by subgroup and skill.

All runs that train together are measured at once; what is compared with is made once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.protocols import Task
from mnemoscope.core.specification import RunSpec
from mnemoscope.core.task import monitoring_batch
from mnemoscope.interventions.clamping import make_clamping
from mnemoscope.training.learner import Learner
from mnemoscope.training.schedule import stack_batches

Line = Mapping[str, float]
"""Measures by name."""


@dataclass(frozen=True)
class MonitorBatches:
    """Batches of one split, one a run, and the masks that measures are means over: `run batch scored`.

    Inputs are those of all positions, targets those at the scored positions; `scored` marks where the loss looks.
    `weights` are those of sequences under the task's distribution, `parts` slices of target vectors.
    """

    inputs: Tensor
    targets: Tensor
    scored: Bool[Tensor, "run batch scored"]
    weights: Float[Tensor, "run batch 1"]
    subgroups: Mapping[str, Bool[Tensor, "run batch 1"]]
    skills: Mapping[str, Bool[Tensor, "run batch scored"]]
    parts: Mapping[str, slice]

    def select_runs(self, runs: Sequence[int]) -> "MonitorBatches":
        """The batches of some of the runs."""
        kept = list(runs)
        parts = {name: getattr(self, name)[kept] for name in ("inputs", "targets", "scored", "weights")}
        masks = {
            name: {key: mask[kept] for key, mask in getattr(self, name).items()} for name in ("subgroups", "skills")
        }
        return replace(self, **parts, **masks)

    @torch.no_grad()
    def lines(self, outputs: Float[Tensor, "run batch scored d_output"]) -> list[Line]:
        """The measures of every run from its logits or vectors at the scored positions, losses in nats.

        They are the loss on the task's own mixture and of every subgroup, and the loss and accuracy of every skill.
        Where targets are vectors losses are mean squared errors; the parts of the targets have theirs as well, and
        skills have no accuracy.
        """
        losses = metrics.loss(outputs, self.targets)
        found = {"loss": _mean(losses, self.scored, self.weights)}
        found |= {f"loss_{name}": _mean(losses, self.scored & rows) for name, rows in self.subgroups.items()}
        for name, mask in self.skills.items():
            found[f"loss_{name}"] = _mean(losses, mask)
            if not self.targets.is_floating_point():
                found[name] = _mean(metrics.is_correct(outputs, self.targets), mask)
        for name, part in self.parts.items():
            found[f"loss_{name}"] = _mean(metrics.loss(outputs[..., part], self.targets[..., part]), self.scored)
        return [dict(zip(found, values, strict=True)) for values in torch.stack(list(found.values()), 1).tolist()]


def stack_monitor_batches(
    tasks: Sequence[Task], batches: Sequence[Batch], positions: Int[Tensor, " scored"]
) -> MonitorBatches:
    """The batches of a split, equal in shape and one a run; `positions` are all at which some sequence is scored."""
    weights = [batch.scored.new_ones(len(batch)) if batch.weights is None else batch.weights for batch in batches]
    subgroups = [task.subgroups(batch) for task, batch in zip(tasks, batches, strict=True)]
    skills = [task.skills(batch) for task, batch in zip(tasks, batches, strict=True)]
    examples = stack_batches(batches)
    return MonitorBatches(
        inputs=examples.inputs,
        targets=examples.targets[:, :, positions],
        scored=examples.scored[:, :, positions],
        weights=torch.stack(weights).double()[..., None],
        subgroups={name: torch.stack([each[name] for each in subgroups])[..., None] for name in subgroups[0]},
        skills={name: torch.stack([each[name] for each in skills])[:, :, positions] for name in skills[0]},
        parts=batches[0].parts,
    )


def _mean(
    values: Float[Tensor, "run batch scored"] | Bool[Tensor, "run batch scored"],
    mask: Bool[Tensor, "run batch scored"],
    weights: Float[Tensor, "run batch 1"] | float = 1.0,
) -> Float[Tensor, " run"]:
    """The mean of every run over what the mask names, weighted, in float64; NaN where it names nothing."""
    counted = mask * weights
    return torch.where(counted > 0, values.double() * counted, 0.0).sum((1, 2)) / counted.sum((1, 2))


class Monitors:
    """The monitoring batches of runs that differ in the seed only, and all positions that a sequence is scored at."""

    def __init__(self, specs: Sequence[RunSpec], device: torch.device | str = "cpu"):
        batches = {
            split: [monitoring_batch(spec.task, split=split, seed=spec.seed, device=device) for spec in specs]
            for split in ("train", "test")
        }
        scored = [batch.scored.any(0) for each in batches.values() for batch in each]
        self._clamping, self._batches = make_clamping(specs[0]), batches
        self.positions = torch.stack(scored).any(0).nonzero()[:, 0]
        tasks = [spec.task for spec in specs]
        self._splits = {split: stack_monitor_batches(tasks, each, self.positions) for split, each in batches.items()}

    @property
    def skills(self) -> list[str]:
        """Names of the skills of the test split."""
        return list(self._splits["test"].skills)

    def lines(self, learner: Learner, runs: Sequence[int], step: int) -> list[Line]:
        """The measures of some of the runs after `step` updates, those of the learner.

        `train_<name>` and `test_<name>` are of the model as it is. Where the recipe has clamps, `clamped_train_<name>`
        and `clamped_test_<name>` are with those of the next update: its loss is what training goes down.
        """
        found: list[dict[str, float]] = [{} for _ in runs]
        for split, batches in self._splits.items():
            asked = batches if len(runs) == len(batches.inputs) else batches.select_runs(runs)
            free = asked.lines(learner.evaluate(asked.inputs, self.positions))
            views = {split: free}
            if self._clamping is not None:
                held = self._clamping.held(step, partial(_chosen, self._batches[split], runs))
                clamped = free if held is None else asked.lines(learner.evaluate(asked.inputs, self.positions, held))
                views[f"clamped_{split}"] = clamped
            for name, lines in views.items():
                for line, measured in zip(found, lines, strict=True):
                    line.update({f"{name}_{key}": value for key, value in measured.items()})
        return list(found)


def _chosen(batches: Sequence[Batch], runs: Sequence[int]) -> list[Batch]:
    return [batches[run] for run in runs]
