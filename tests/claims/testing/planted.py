"""Runs whose models have weights set by hand, so that it is known what claims should say of every seed."""

import copy
from collections.abc import Mapping
from pathlib import Path

import torch

from mnemoscope.core.specification import ModelSpec, Recipe, RunSpec
from mnemoscope.models.checkpoint import save_checkpoint
from mnemoscope.models.run import create_run
from mnemoscope.models.subjects import Subject
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

N_VALUES = 4
TASK = PermutationLookup(n_values=N_VALUES, repeat_ratio=0.3)


def subject_of(model, seed: int = 0) -> Subject:
    return Subject(model=model, task=TASK.for_seed(seed), seed=seed)


def plant(directory: Path, models: Mapping[int, object], preset: str = "planted") -> Path:
    """A directory with one run a seed."""
    for seed, model in models.items():
        recipe = Recipe(name="by-hand", n_steps=1)
        spec = RunSpec(task=TASK.for_seed(seed), model=ModelSpec(), recipe=recipe, seed=seed, preset=preset)
        run = create_run(directory / preset / f"seed-{seed:02d}", spec)
        save_finished(model, run, seed, step=1)
    return directory


def save_finished(model, run, seed: int, *, step: int) -> None:
    """A run whose weights are no other seed's: all logits are higher by an amount that depends on the seed."""
    own = copy.deepcopy(model)
    with torch.no_grad():
        own.unembed.b_U += seed / 1024
    save_checkpoint(own, run.checkpoint_path(step), step=step)
    (run.path / "done").touch()
