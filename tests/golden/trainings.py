"""Short trainings of every preset: parameters half-way and at the end, and every line of metrics.

Tasks of tokens run in float64. Adam divides a gradient by its own size, so that a parameter whose gradient is only
rounding, such as a bias of keys, moves by whole steps in directions that differ from processor to processor. In float64
this rounding lies far below Adam's epsilon, and all parameters agree closely everywhere. Tasks of vectors train in
float32 only; their biases of keys are left out, and the tolerance is wider.

In float32, in which presets train by default, some are also held to every bit (`bits`). That means something only on
the processor and with the PyTorch of the record.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

import mnemoscope as ms
from mnemoscope.core.specification import RunSpec
from tests.golden.models import DEVICE
from tests.golden.summary import as_array, digest
from tests.lines.outcome import TRAINED
from tests.support import seeded

N_STEPS = 20
HALF = N_STEPS // 2
BITS = (*TRAINED, "retrieval-2-2-layers", "memories-keys-late", "v3-no-mlp", "v3-4-values")


def short(name: str, dtype: str) -> RunSpec:
    """A preset under its quick recipe, with fewer and smaller steps; what changes during training does so earlier."""
    changes = {
        "recipe.n_steps": N_STEPS, "recipe.checkpoint_steps": (HALF,), "recipe.warmup_steps": 2,
        "recipe.batch_size": 16, "recipe.metrics_every": N_STEPS, "model.dtype": dtype,
    }  # fmt: skip
    spec = ms.preset(name, "quick", changes=changes)
    frozen = tuple(each if each.stop is None else replace(each, stop=HALF // 2) for each in spec.recipe.frozen)
    at = dict(zip(sorted({change.step for change in spec.recipe.task_changes}), (0, 7, 14), strict=False))
    tasks = tuple(replace(change, step=at[change.step]) for change in spec.recipe.task_changes)
    return replace(spec, recipe=replace(spec.recipe, frozen=frozen, task_changes=tasks))


def dtype_of(name: str) -> str:
    """The precision of a preset here."""
    batch = ms.preset(name).task.sample(1, split="train", generator=seeded())
    return "float32" if batch.inputs.is_floating_point() else "float64"


def checkpoints(run: ms.Run) -> dict[str, Mapping[str, np.ndarray]]:
    """By step the parameters of the checkpoints."""
    return {
        str(step): {name: value.detach().numpy() for name, value in run.model(step).named_parameters()}
        for step in (HALF, N_STEPS)
    }


def metrics(run: ms.Run) -> dict[str, np.ndarray]:
    """By name the values of a metric, line by line."""
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return {name: as_array([line[name] for line in lines]) for name in lines[0]}


def trained(name: str, dtype: str) -> tuple[dict[str, Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Checkpoints and metrics of a short run."""
    with tempfile.TemporaryDirectory() as place:
        run = ms.train(short(name, dtype), Path(place) / "run", device=DEVICE)
        return checkpoints(run), metrics(run)


def arrays(name: str) -> dict[str, np.ndarray]:
    """Of a preset, the layers of each parameter beside each other."""
    dtype = dtype_of(name)
    by_step, found = trained(name, dtype)
    stacked: dict[str, list[np.ndarray]] = {}
    for step, tensors in by_step.items():
        for key, value in tensors.items():
            if dtype == "float32" and key.endswith(".b_K"):
                continue  # the softmax takes no notice of it, so that its gradient is nothing but rounding
            kind = ".".join(part for part in key.split(".") if not part.isdigit())
            stacked.setdefault(f"{name}/step {step} {kind}", []).append(as_array(value))
    return {
        **{key: np.concatenate([value.ravel() for value in values]) for key, values in stacked.items()},
        **{f"{name}/metric {key}": value for key, value in found.items()},
    }


def bits(name: str) -> str:
    """The digest of a float32 run."""
    by_step, found = trained(name, "float32")
    tensors = (value for tensors in by_step.values() for value in tensors.values())
    return digest([*tensors, *found.values()])
