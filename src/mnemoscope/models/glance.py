"""What runs are, at a glance: from the text in their directories, without a task, a model or a tensor.

*Does not show* whether a run can be opened: specification and weights are checked by `models.run` and `checkpoint`.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from mnemoscope.core.errors import InputError
from mnemoscope.models.progress_file import read_progress
from mnemoscope.models.zoo import shipped


@dataclass(frozen=True, kw_only=True)
class Glance:
    """A run directory with a checkpoint."""

    path: Path
    preset: str
    recipe: str
    seed: int
    last_step: int
    """Of its last checkpoint."""
    finished: bool
    loss: float
    """On training mappings, in nats, at the last step that was logged; NaN: nothing was logged."""


def glance(path: Path) -> list[Glance]:
    """The runs at or below a directory, or of a word such as `zoo:<configuration>`; by configuration and seed.

    Raises:
        InputError: It holds none with a checkpoint, or a file in one is damaged.
    """
    folders = shipped(path)
    if folders is None:
        folders = [file.parent for file in path.rglob("run.json")]
    found = [run for folder in folders if (run := _of(folder)) is not None]
    if not found:
        raise nothing_in(path)
    return sorted(found, key=lambda run: (run.preset, run.recipe, run.seed))


def nothing_in(path: Path) -> InputError:
    """The message about a place without runs."""
    return InputError(f"{path} is no run directory and holds none with a checkpoint; `mnemoscope train` makes one")


def _of(folder: Path) -> Glance | None:
    """The run in a directory; None: it has no checkpoint yet."""
    steps = [int(file.name.partition(".")[0]) for file in (folder / "checkpoints").glob("[0-9]*.safetensors")]
    if not steps:
        return None
    try:
        content = json.loads((folder / "run.json").read_text())
        preset, recipe, seed = content["preset"], content["recipe"]["name"], content["seed"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder / 'run.json'} cannot be read: {error}") from None
    finished, log = (folder / "done").exists(), folder / "metrics.jsonl"
    loss = read_progress(log, finished=finished)[-1]["train_loss"] if log.exists() else math.nan
    return Glance(
        path=folder, preset=preset, recipe=recipe, seed=seed, last_step=max(steps), finished=finished, loss=loss
    )
