"""Verdicts on the zoo that are decided within half a minute each, with what was measured of every replicate.

Two claims on tiny recall, one on k-hop and one on noisy recall stand for their systems. All others are left to
`make test-claims`, which asks them of planted models, and to `mnemoscope claims run SYSTEM --zoo` followed by
`claims diff`, which takes hours for everything.
"""

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import mnemoscope as ms
from mnemoscope.core.presets import label_of
from mnemoscope.models.zoo import labels
from tests.golden.summary import of_dataset

CLAIMS = ("T2", "T9", "K1", "N1")


def ruling(id: str) -> Any:
    """What the trial of a claim on the zoo gives, without sensitivity and emergence."""
    claim = ms.CLAIMS.get(id)
    asked = {label_of(unit.spec(0)) for unit in claim.units.values()}
    runs = [run for label in sorted(asked.intersection(labels())) for run in ms.find_runs(Path(f"zoo:{label}"))]
    return ms.run_trials([claim], runs, sensitivity=False, emergence=False)[0]


def arrays(id: str, found: Any) -> dict[str, np.ndarray]:
    """The effects of every replicate."""
    effects = found.evidence.effects
    result = effects.to_dataset(name="effect") if isinstance(effects, xr.DataArray) else effects
    return {f"{id}/{name}": value for name, value in of_dataset(result).items()}
