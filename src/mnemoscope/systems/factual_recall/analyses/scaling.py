r"""The number of facts that models of growing width learn, and its growth with the number of their parameters.

For every width d the largest S = R is searched for at which a model answers 99 % (Nichani, Lee & Bietti 2025, section
5). It has heads of width :math:`\alpha d / H` and :math:`\beta d` neurons. Parameters count as published,
:math:`4 H d_h d + 2 m d`. The exponent b is that of :math:`S R \propto P^b`, fitted on logarithms over the widths;
theory has b = 1 up to logarithms.

Scaled down: d from 8 to 32, without an MLP from 16 to 45, by half powers (published to 181); S = R from 3 to 48 (8 to
512), batches of 256 (1,024), at most 2,048 steps (16,384), one rate (the best of three), 32 noise tokens at every size
(S + R).

*Shows* how many facts this training finds. *Does not show* how many could be stored. A model counts as soon as it
answers 254 of the 256 sequences that it is watched on, which one of 98 % sometimes does.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import xarray as xr

from mnemoscope import InputError
from mnemoscope.run import Largest, Sweep, search_sweep

WIDTHS = (8, 11, 16, 23, 32)
WITHOUT_MLP = (16, 23, 32, 45)
"""Widths of models without an MLP: smaller ones hardly learn anything."""
N_HEADS = 4
ALPHA, BETA = 2.0, 2.0
"""With an MLP: heads of width d/2 and 2 d neurons, 12 d² parameters. Without one heads have width d: 16 d²."""
FACTS = Largest(fields=("task.n_subjects", "task.n_relations"), between=(3, 48), per_octave=4)
TRAINING = {
    "recipe.n_steps": 2**11,
    "recipe.batch_size": 256,
    "recipe.stop_at": 0.99,
    "recipe.checkpoint_steps": (),
    "task.n_noise": 32,
}


def scaling_sweep(
    draws: Sequence[int], *, mlp: bool, widths: Sequence[int] | None = None, learning_rate: float = 1e-2
) -> Sweep:
    """The sweep that is searched; widths are by default `WIDTHS`, without an MLP `WITHOUT_MLP`; draws are seeds."""
    if widths is None:
        widths = WIDTHS if mlp else WITHOUT_MLP
    axis = tuple(_sizes(width, mlp) for width in widths)
    changes = {**TRAINING, "model.n_heads": N_HEADS, "model.mlp": mlp, "recipe.learning_rate": learning_rate}
    return Sweep(preset="facts", seeds=tuple(draws), axes={"width": axis}, changes=changes, largest=FACTS)


def _sizes(width: int, mlp: bool) -> dict[str, int]:
    alpha = ALPHA if mlp else N_HEADS
    return {"model.d_model": width, "model.d_head": round(alpha * width / N_HEADS), "model.d_mlp": round(BETA * width)}


def capacity(sweep: Sweep, out: Path | None = None, *, jobs: int = 1) -> xr.Dataset:
    """The largest number of facts, S R, over (width, draw), and `parameters` over width, counted as in the paper.

    A search continues from the runs in `out`; without a directory its runs are deleted.
    """
    with TemporaryDirectory() as directory:
        found = search_sweep(sweep, Path(directory) if out is None else out, jobs=jobs).rename(seed="draw")
    return xr.Dataset({"facts": found.largest**2, "parameters": n_parameters(sweep)}, attrs=found.attrs)


def n_parameters(sweep: Sweep) -> xr.DataArray:
    """The parameters over width, as they are counted in the paper: embeddings and biases are left out."""
    models = [sweep.spec(cell, sweep.seeds[0]).model for cell in sweep.cells().values()]
    counted = [4 * m.n_heads * m.head_width * m.d_model + 2 * m.mlp * m.mlp_width * m.d_model for m in models]
    return xr.DataArray(counted, dims="width", coords={"width": [m.d_model for m in models]}, name="parameters")


def exponents(found: xr.Dataset) -> xr.DataArray:
    """The exponent b of S R ∝ P^b by draw, from `capacity` over at least two widths: least squares on logarithms.

    NaN where some width learns not even the least number of facts.
    """
    if found.sizes["width"] < 2:
        raise InputError(f"an exponent needs at least two widths; got {found.sizes['width']}")
    logs = np.log(found.facts.where(found.facts > 0)).transpose("width", "draw")
    size = np.log(found.parameters)
    size = size - size.mean()
    return ((logs * size).sum("width", skipna=False) / (size**2).sum()).rename("exponent")
