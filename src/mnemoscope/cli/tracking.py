"""Training followed in Weights & Biases: one run there for each run here, with its specification and every metric.

wandb's own environment variables and settings apply: project, entity, offline mode. A run that is continued here
continues there.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mnemoscope.core.errors import InputError
from mnemoscope.core.specification import RunSpec
from mnemoscope.training.recorder import Progress, Report

PROJECT = "mnemoscope"
"""The project unless WANDB_PROJECT names another."""


@contextmanager
def tracked(report: Report, specs: Sequence[RunSpec], paths: Sequence[Path]) -> Iterator[Report]:
    """A report function that also sends every line to Weights & Biases; runs that are open at the end are closed."""
    wandb = ready()
    by_path = dict(zip(paths, specs, strict=True))
    begun: dict[Path, Any] = {}

    def both(line: Progress) -> None:
        report(line)
        if line.path not in begun:
            begun[line.path] = _begin(wandb, line.path, by_path[line.path])
        begun[line.path].log(dict(line.metrics), step=line.step)
        if line.step == line.n_steps:
            begun.pop(line.path).finish()

    try:
        yield both
    finally:
        for run in begun.values():
            run.finish(exit_code=1)


def ready() -> Any:
    """The library, to be used without a question to the user; refused where it is missing or nobody is logged in."""
    try:
        import wandb
    except ImportError:
        raise InputError("--track wandb needs wandb: pip install 'mnemoscope[wandb]'") from None
    if wandb.setup().settings.mode == "online" and not wandb.login(prompt=False):
        raise InputError("--track wandb: nobody is logged in; run `wandb login`, or set WANDB_MODE=offline")
    return wandb


def _begin(wandb: Any, path: Path, spec: RunSpec) -> Any:
    """A separate run beside others; its id is that of the directory, so that continuing continues it."""
    name = "/".join(path.parts[-2:])
    return wandb.init(
        project=wandb.setup().settings.project or PROJECT,
        name=name,
        id=hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16],
        group=path.parent.name,
        job_type="train",
        config=spec.to_dict(),
        resume="allow",
        reinit="create_new",
        settings=wandb.Settings(silent=True),
    )
