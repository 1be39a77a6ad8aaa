"""The rolling state of a run: what continuing it needs, and nothing else.

Data and schedules are functions of the step, so parameters, the optimiser's moments and the step are enough.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mnemoscope.core.errors import InputError
from mnemoscope.models.run import Run
from mnemoscope.models.tensor_files import read_tensors, write_tensors

_KIND = "training-state"
Moments = Mapping[str, Mapping[str, Tensor]]


def state_path(run: Run) -> Path:
    """The file of the rolling state of a run."""
    return run.path / "last.safetensors"


def write_state(run: Run, step: int, params: Mapping[str, Tensor], moments: Moments) -> None:
    """Save parameters and the optimiser's moments after `step` updates."""
    tensors = {f"parameter/{name}": value for name, value in params.items()}
    tensors |= {f"{kind}/{name}": values[kind] for name, values in moments.items() for kind in values}
    write_tensors(state_path(run), tensors, {"kind": _KIND, "step": str(step)})


def last_step(run: Run) -> int:
    """Number of updates in the saved state; 0 where there is none."""
    return read_state(run).step if state_path(run).exists() else 0


@dataclass(frozen=True)
class State:
    """The saved state: parameters and the optimiser's moments after `step` updates."""

    step: int
    parameters: Mapping[str, Tensor]
    moments: Moments


def read_state(run: Run, device: torch.device | str = "cpu") -> State:
    """The saved state of a run.

    Raises InputError where the file is damaged; deleting it starts the run afresh.
    """
    try:
        tensors, metadata = read_tensors(state_path(run), _KIND)
    except InputError as error:
        raise InputError(f"{error}; without {state_path(run).name} the run starts afresh") from None
    params: dict[str, Tensor] = {}
    moments: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        kind, _, name = key.partition("/")
        if kind == "parameter":
            params[name] = value.to(device)
        else:
            moments.setdefault(name, {})[kind] = value.to(device)
    return State(int(metadata["step"]), params, moments)
