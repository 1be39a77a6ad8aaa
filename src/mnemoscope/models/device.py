"""Devices that models can go to: a word becomes a device of this machine, or is refused before anything is written."""

import torch

from mnemoscope.core.errors import InputError


def usable_device(device: torch.device | str) -> torch.device:
    """The device of that name.

    Raises:
        InputError: There is no such device, or torch cannot use it on this machine.
    """
    try:
        found = torch.device(device)
    except RuntimeError:
        found = None
    if found is not None and (found.type == "cpu" or str(found) in _accelerators()):
        return found
    allowed = ", ".join(["cpu", *_accelerators()])
    raise InputError(f"device must be one that torch can use on this machine: {allowed}; got {str(device)!r}")


def _accelerators() -> list[str]:
    """Such as cuda, cuda:0 and cuda:1; asking starts no context on the device."""
    kind = torch.accelerator.current_accelerator()
    if kind is None or not torch.accelerator.is_available():
        return []
    return [kind.type, *(f"{kind.type}:{index}" for index in range(torch.accelerator.device_count()))]
