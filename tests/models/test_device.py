"""Which devices are usable, on this machine and on others that are made up."""

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.models.building import usable_device
from mnemoscope.models.checkpoint import save_checkpoint
from mnemoscope.models.run import create_run
from tests.support import random_model, small_spec


@pytest.fixture
def two_gpus(monkeypatch):
    """A machine whose accelerators are called cuda:0 and cuda:1."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)


def test_the_processor_is_always_there():
    assert usable_device("cpu") == usable_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.usefixtures("two_gpus")
def test_accelerators_are_named_with_and_without_a_number():
    for name in ("cuda", "cuda:0", "cuda:1"):
        assert usable_device(name) == usable_device(torch.device(name)) == torch.device(name)
    for name in ("cuda:2", "mps", "cuda:one", "gpu"):
        with pytest.raises(InputError, match=f"on this machine: cpu, cuda, cuda:0, cuda:1; got '{name}'"):
            usable_device(name)


def test_an_accelerator_that_torch_knows_but_cannot_use_is_refused(two_gpus, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(InputError, match="on this machine: cpu; got 'cuda'"):
        usable_device("cuda")


def test_models_are_read_to_devices_of_this_machine(tmp_path):
    run = create_run(tmp_path, small_spec())
    save_checkpoint(random_model(), run.checkpoint_path(0))
    assert run.model(device="cpu").W_E.device.type == "cpu"
    with pytest.raises(InputError, match="got 'cdua'"):
        run.model(device="cdua")
