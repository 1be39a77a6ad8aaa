from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
import xarray as xr

import mnemoscope as ms
from mnemoscope.records.pairs import describe_costliest, pairs_by_skill
from mnemoscope.records.record import PairOptions
from tests.records.planted import along


def patched(values):
    coords = {"direction": ["noising", "denoising"], "metric": ["logit_diff"], "layer": [0, 1], "pos": [0, 1, 2]}
    return xr.Dataset({"ratio": along(("direction", "metric", "layer", "pos"), (2, 1, 2, 3), values, **coords)})


def test_patching_names_the_cell_that_costs_most():
    by_skill = {"copy": patched({("noising", "logit_diff", 1, 2): 0.9, ("denoising", "logit_diff", 0, 0): 1.0})}
    assert describe_costliest(by_skill, what="resid_pre") == (
        "Patching resid_pre into the clean run costs most for copy at layer 1, pos 2 "
        "(0.85 [0.80, 0.90] of the difference is lost)."
    )
    assert (
        describe_costliest({"copy": patched({})}, what="z")
        == "No single patch of z loses 0.01 of the difference or more."
    )
    nothing = {"copy": patched({}) * np.nan}
    assert describe_costliest(nothing, what="z").startswith("No single patch")


def test_a_position_is_called_by_its_name():
    ratio = xr.DataArray(
        np.array([[[[0.1, 0.9]]]]),
        dims=("seed", "direction", "metric", "pos"),
        coords={"seed": [3], "direction": ["noising"], "metric": ["logit_diff"], "pos": [7, 8]},
    ).assign_coords(pos_name=("pos", ["y4", "x5"]))
    said = describe_costliest({"recall": ratio.to_dataset(name="ratio")}, what="z")
    assert "for recall at pos x5 (0.90" in said


@dataclass(frozen=True, kw_only=True)
class FirstToken(ms.BaseTask):
    """A task without minimal pairs."""

    name: ClassVar[str] = "first-token"
    d_vocab: ClassVar[int] = 4
    n_ctx: ClassVar[int] = 3

    def sample(self, n, *, split, generator):
        tokens = torch.randint(self.d_vocab, (n, 3), generator=generator)
        return ms.Batch(inputs=tokens, targets=tokens, scored=torch.ones_like(tokens, dtype=torch.bool))


def test_a_task_without_corruptions_is_refused_by_name(tiny):
    task = FirstToken()
    run = replace(tiny, spec=replace(tiny.spec, task=task))
    batch = task.sample(2, split="test", generator=torch.Generator())
    with pytest.raises(ms.InputError, match="pairs need a task with corruptions; first-token has none"):
        pairs_by_skill(run, PairOptions(), batch)
