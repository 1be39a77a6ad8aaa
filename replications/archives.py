"""Reading trained runs from the archives that are shipped, with zipfile, json and safetensors.

An archive is `src/mnemoscope/systems/<system>/zoo/<configuration>.zip`. A run in it is a folder `seed-16` with
`run.json`, the log `metrics.jsonl`, and the last checkpoint. docs/zoo.md and docs/run_directory.md describe both.

The split of a task, its hidden tables and the frozen weights are not shipped. They are drawn from the seed: a stream is
a torch generator whose seed is the first eight bytes of SHA-256 of the tuple (seed, name of the stream), halved.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from safetensors.torch import load
from torch import Tensor

SYSTEMS = Path(__file__).parents[1] / "src" / "mnemoscope" / "systems"


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One trained run.

    `task` and `model` are those of `run.json`, `log` the lines of `metrics.jsonl`, `trajectory` what was measured of
    checkpoints that are not shipped, and empty where there is none. `weights` are the parameters of the
    last checkpoint in float32, by their names in TransformerLens; compact archives hold half precision, and only
    parameters that were trained.
    """

    seed: int
    task: Mapping[str, Any]
    model: Mapping[str, Any]
    log: tuple[Mapping[str, float], ...]
    trajectory: Mapping[str, Any]
    weights: Mapping[str, Tensor]


def seeds_of(system: str, configuration: str) -> list[int]:
    """The seeds in an archive, ascending."""
    with ZipFile(_file(system, configuration)) as archive:
        return sorted({int(name.partition("/")[0].removeprefix("seed-")) for name in archive.namelist()})


def read_run(system: str, configuration: str, seed: int) -> Run:
    """The run of a seed; raises KeyError where the archive does not have it."""
    with ZipFile(_file(system, configuration)) as archive:
        folder = f"seed-{seed:02d}/"
        specification = json.loads(archive.read(folder + "run.json"))
        lines = archive.read(folder + "metrics.jsonl").decode().splitlines()
        beside = folder + "trajectory.json"
        trajectory = json.loads(archive.read(beside)) if beside in archive.namelist() else {}
        last = max(name for name in archive.namelist() if name.startswith(folder + "checkpoints/"))
        stored = load(archive.read(last))
    weights = {name: value.float() for name, value in stored.items() if not name.endswith((".mask", ".IGNORE"))}
    task, model = specification["task"], specification["model"]
    log = tuple(map(json.loads, lines))
    return Run(seed=seed, task=task, model=model, log=log, trajectory=trajectory, weights=weights)


def stream(seed: int, *name: str) -> torch.Generator:
    """The generator of a named stream of a seed."""
    digest = hashlib.sha256(repr((seed, *name)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def fresh_draws(run: Run) -> torch.Generator:
    """A generator for fresh prompts, which the package uses nowhere."""
    return stream(run.seed, "replications")


def _file(system: str, configuration: str) -> Path:
    return SYSTEMS / system / "zoo" / f"{configuration}.zip"
