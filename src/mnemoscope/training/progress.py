"""How far a run has come: losses and accuracies on fixed monitoring batches, by subgroup and skill."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.protocols import Task


@dataclass(frozen=True)
class Progress:
    """A line of metrics that was just measured."""

    path: Path
    step: int
    n_steps: int
    metrics: Mapping[str, float]


@torch.no_grad()
def measure(
    task: Task, batch: Batch, outputs: Float[Tensor, "batch scored d_vocab"], positions: Int[Tensor, " scored"]
) -> dict[str, float]:
    """Loss on the task's own mixture and of every subgroup, loss and accuracy of every skill; losses in nats.

    Args:
        task: Knows subgroups and skills.
        batch: A monitoring batch, weighted.
        outputs: Logits at `positions`.
        positions: Every position that some sequence of the batch is scored at.
    """
    scored = batch.scored[:, positions]
    losses = metrics.cross_entropy(outputs, batch.targets[:, positions]) * scored
    correct = metrics.correct(outputs, batch.targets[:, positions])
    total, count = losses.sum(1), scored.sum(1)
    weights = torch.ones_like(total) if batch.weights is None else batch.weights.to(total.dtype)
    line = {"loss": float(weights @ total / (weights @ count.to(total.dtype)))}
    line |= {f"loss_{n}": float(total[rows].sum() / count[rows].sum()) for n, rows in task.subgroups(batch).items()}
    for name, mask in task.skills(batch).items():
        here = mask[:, positions]
        line[f"loss_{name}"] = float(losses[here].mean())
        line[name] = float(correct[here].double().mean())
    return line
