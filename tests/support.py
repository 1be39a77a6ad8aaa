"""What several tests share: specifications, models set by hand, and the state of things to compare."""

import json
import random
import shutil
from contextlib import contextmanager
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.core.patterns import earlier
from mnemoscope.core.presets import preset
from mnemoscope.core.specification import ModelSpec, RunSpec
from mnemoscope.engine.architecture import transformer_from_spec
from mnemoscope.engine.block import OutputPlaces
from mnemoscope.models.building import build, from_configuration, matching_names, zero_patterns
from mnemoscope.models.checkpoint import save_checkpoint
from mnemoscope.models.constructed.stand_ins import Predictor as Predictor
from mnemoscope.models.run import Run, open_run

MINUTES = pytest.mark.drawn(3, of="tests of minutes")
"""Tests of the slow and the thorough lane that take a minute and more: continuous integration runs three of each."""
EARLIER_X = earlier(period=2, phase=0, name="earlier x")
EARLIER_Y = earlier(period=2, phase=1, name="earlier y")
SMALL = {
    "recipe.n_steps": 60,
    "recipe.warmup_steps": 10,
    "recipe.batch_size": 512,  # 32 steps a block of data: 60 steps cross a border
    "recipe.metrics_every": 10,
    "recipe.save_every": 25,  # once together with a line of metrics, once not
    "recipe.checkpoint_steps": (10, 30),
}
LONGER = {"recipe.warmup_steps": 100, "recipe.batch_size": 256}


def small_spec(name: str = "v3", *, seed: int = 0, changes: dict | None = None) -> RunSpec:
    """A preset under a recipe of 60 steps, unless `changes` say otherwise."""
    return preset(name, "quick", seed, changes={**SMALL, **(changes or {})})


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def perturbed(model, *, spec: ModelSpec | None = None, scale: float = 0.3):
    """The model with noise on every parameter (biases start at zero), save those that `spec` switches off."""
    off = matching_names(zero_patterns(spec), dict(model.named_parameters())) if spec else ()
    generator = seeded(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = scale * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter += torch.zeros_like(parameter) if name in off else noise
    return model


def random_model(*, d_vocab: int = 6, n_ctx: int = 9, seed: int = 0, **changes):
    """A model of the package with all parameters away from zero."""
    spec = ModelSpec(**{"d_model": 8, "n_heads": 2, **changes})
    return perturbed(build(spec, d_vocab=d_vocab, n_ctx=n_ctx, seed=seed), spec=spec)


def logits_of(params, spec: ModelSpec, inputs, positions, **options):
    """What training computes: the engine's outputs at some positions of every sequence."""
    return transformer_from_spec(params, spec, **options)(inputs, OutputPlaces(columns=positions))


def foreign_model(**changes):
    """A HookedTransformer that was not made by the package; the same at every call."""
    config = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_head": 3, "n_ctx": 20, "d_vocab": 50, "dtype": "float32"}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return perturbed(from_configuration({**config, "act_fn": "gelu_new", **changes}))


@contextmanager
def global_generators_untouched():
    """Fails if the block draws from a global generator, or seeds one."""

    def state():
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()

    before = state()
    jaxtyping.config.update("jaxtyping_disable", True)  # beartype draws the items that it checks
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    assert state() == before, "a global generator was moved"


def ends_with(model, trained: Run, place: Path) -> Run:
    """A copy, in the directory `place`, of a trained run whose last checkpoint is a circuit that was set by hand."""
    run = open_run(shutil.copytree(trained.path, place))
    last = run.spec.recipe.n_steps
    save_checkpoint(model, run.checkpoint_path(last), step=last)
    return run


def contents(path: Path) -> dict[str, object]:
    """Every file of a run directory by name, without the lock, the command, the date and what a kill leaves behind."""
    files = {str(f.relative_to(path)): f.read_bytes() for f in sorted(path.rglob("*")) if f.is_file()}
    files = {name: content for name, content in files.items() if not Path(name).name.startswith(".")}
    run = json.loads(files.pop("run.json"))
    del run["command"], run["created"]
    run.get("digests", {}).pop("run.json", None)  # that of the date too
    return {**files, "run.json": run}


def flip(path: Path, offset: int, bit: int = 0) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(bytes(data))


def reads_back(result: xr.Dataset, path: Path) -> bool:
    """Whether a result comes back from a netCDF file as it was written."""
    result.to_netcdf(path, engine="h5netcdf")
    return xr.load_dataset(path, engine="h5netcdf").equals(result)
