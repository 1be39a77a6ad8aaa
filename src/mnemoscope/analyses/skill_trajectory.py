r"""What is followed along the training of any task: accuracy and loss of every skill on unseen prompts.

Of one checkpoint, over the positions that test a skill: the mean accuracy of the best guess (a random one where several
are equally good) and the mean of :math:`-\log p(y)` in nats. Prompts are those that the run was monitored on
(`core.monitoring`), split `test`: all checkpoints see the same, so that what differs along steps is the model.

*Shows* when in training a skill is there, at the resolution of the checkpoints.

*Does not show* how the model comes by it. A skill whose exact predictor is right less than half of the time never
reaches an accuracy of one half, and one that guessing gets right half of the time has it at step 0.
"""

import torch
import xarray as xr

from mnemoscope.analyses.evaluation import ALL, expected_accuracy
from mnemoscope.analyses.forward import log_probs
from mnemoscope.core import metrics
from mnemoscope.core.monitoring import monitored
from mnemoscope.core.protocols import HookedModel, Task


@torch.no_grad()
def skill_trajectory(model: HookedModel, task: Task, *, seed: int) -> xr.Dataset:
    """Accuracy and loss of every skill, of one checkpoint.

    Args:
        model: Any hooked model whose vocabulary and context are large enough.
        task: What it was trained on, with a split chosen.
        seed: Of the run.

    Returns:
        Scalars `accuracy_<skill>` (share) and `loss_<skill>` (nats), float64; NaN where no position tests the skill.
        Of a task without skills all scored positions are one, `all`.

    Raises:
        InputError: The model is too small for the task, or predicts NaN.
    """
    batch = monitored(task, split="test", seed=seed)
    predicted = log_probs(model, task, batch)
    at = {
        "accuracy": expected_accuracy(predicted, batch.targets),
        "loss": -metrics.at_target(predicted, batch.targets),
    }
    skills = task.skills(batch) or {ALL: batch.scored}
    found = {
        f"{name}_{skill}": float(values[mask].double().mean())
        for name, values in at.items()
        for skill, mask in skills.items()
    }
    return xr.Dataset(found, attrs={"unit": "loss: nats; accuracy: share", "n_sequences": len(batch)})
