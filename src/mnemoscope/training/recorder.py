"""What a run writes while it trains: checkpoints, metrics and the state that it continues from.

Metrics are losses and accuracies on fixed monitoring batches, by subgroup and skill.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.monitoring import monitored
from mnemoscope.core.protocols import Task
from mnemoscope.models.building import untrained
from mnemoscope.models.checkpoint import save_checkpoint
from mnemoscope.models.files import write_atomically
from mnemoscope.models.progress_file import read_progress
from mnemoscope.models.run import Run
from mnemoscope.training.learner import Learner
from mnemoscope.training.state import write_state


@dataclass(frozen=True)
class Progress:
    """A line of metrics that was just measured."""

    path: Path
    step: int
    n_steps: int
    metrics: Mapping[str, float]


Report = Callable[[Progress], None]


class Recorder:
    """Writes one run's checkpoints, metrics and state at the steps that the recipe names."""

    def __init__(self, run: Run, start: int, device: torch.device, report: Report | None):
        spec = run.spec
        self._run, self._report = run, report
        self.model = untrained(spec)
        self._monitors = {
            split: monitored(spec.task, split=split, seed=spec.seed, device=device) for split in ("train", "test")
        }
        self._kept = frozenset(spec.recipe.checkpoints)
        self.positions = torch.stack([m.scored.any(0) for m in self._monitors.values()]).any(0).nonzero()[:, 0]
        before = read_progress(run.path / "metrics.jsonl", finished=False) if start else []
        self._lines = [line for line in before if line["step"] <= start]

    def record(self, step: int, learner: Learner, index: int) -> None:
        """Write what is due after `step` updates; the state comes last, so that it never runs ahead of the rest."""
        recipe = self._run.spec.recipe
        if step % recipe.metrics_every == 0 or step == recipe.n_steps:
            self._lines.append({"step": step, **self._measure(learner, index)})
        ends = self.ends(step)
        if step in self._kept or ends:
            self.model.load_state_dict({**self.model.state_dict(), **learner.parameters(index)})
            save_checkpoint(self.model, self._run.checkpoint_path(step), step=step)
        if self._report and self._lines[-1]["step"] == step:
            self._report(Progress(self._run.path, step, step if ends else recipe.n_steps, self._lines[-1]))
        if ends or (step and step % recipe.save_every == 0):
            text = "".join(json.dumps(line) + "\n" for line in self._lines)
            write_atomically(self._run.path / "metrics.jsonl", text.encode())
            write_state(self._run, step, learner.parameters(index), learner.moments(index))

    def ends(self, step: int) -> bool:
        """Whether training ends with `step`, of which everything is measured: at the last step, or as good as asked."""
        spec, line = self._run.spec, self._lines[-1]
        if step == spec.recipe.n_steps or spec.recipe.stop_at is None or line["step"] != step:
            return step == spec.recipe.n_steps
        accuracies = [line[f"test_{skill}"] for skill in spec.task.skills(self._monitors["test"])]
        return bool(accuracies) and min(accuracies) >= spec.recipe.stop_at

    def _measure(self, learner: Learner, index: int) -> dict[str, float]:
        task = self._run.spec.task
        return {
            f"{split}_{name}": value
            for split, batch in self._monitors.items()
            for name, value in measure(
                task, batch, learner.evaluate(index, batch.inputs, self.positions), self.positions
            ).items()
        }


@torch.no_grad()
def measure(
    task: Task, batch: Batch, outputs: Float[Tensor, "batch scored d_vocab"], positions: Int[Tensor, " scored"]
) -> dict[str, float]:
    """Loss on the task's own mixture and of every subgroup, loss and accuracy of every skill, losses in nats.

    Where targets are vectors losses are mean squared errors; the parts of the targets have theirs as well, and
    skills have no accuracy.

    Args:
        task: Knows subgroups and skills.
        batch: A monitoring batch, weighted.
        outputs: Logits or vectors at `positions`.
        positions: Every position that some sequence of the batch is scored at.
    """
    scored, targets = batch.scored[:, positions], batch.targets[:, positions]
    losses = metrics.loss(outputs, targets) * scored
    total, count = losses.sum(1), scored.sum(1)
    weights = torch.ones_like(total) if batch.weights is None else batch.weights.to(total.dtype)
    line = {"loss": float(weights @ total / (weights @ count.to(total.dtype)))}
    line |= {f"loss_{n}": float(total[rows].sum() / count[rows].sum()) for n, rows in task.subgroups(batch).items()}
    for name, mask in task.skills(batch).items():
        here = mask[:, positions]
        line[f"loss_{name}"] = float(losses[here].mean())
        if not batch.has_vectors:
            line[name] = float(metrics.correct(outputs, targets)[here].double().mean())
    for name, part in batch.parts.items():
        line[f"loss_{name}"] = float(metrics.loss(outputs[..., part], targets[..., part])[scored].mean())
    return line
