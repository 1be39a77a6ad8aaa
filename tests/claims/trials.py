"""Claims and evidence made up for tests of the engine."""

import numpy as np
import xarray as xr

from mnemoscope.claims.claim import Claim, Control
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.explanation import Explanation, Quantity

MARGIN = 0.25


def make_claim(quantifier: str | None = "most", **changes) -> Claim:
    criterion = {"quantifier": quantifier, "margin": MARGIN} if quantifier else {}
    if quantifier == "equivalence":
        criterion["direction"] = "within"
    return Claim(**{"id": "T0", "statement": "it does", "source": "made up", **criterion, **changes})


EXPLAINED = Explanation(procedure="Made up.", quantities={"effect": Quantity(words="a number")}, margins="Made up.")
NOTHING = Control(name="nothing there", kind="negative")
"""A control that whoever gives the evidence measures: claims are not registered without a negative one."""


def along_seeds(values, **attributes) -> xr.DataArray:
    values = np.asarray(values)
    dims = ("seed", "prompt")[: values.ndim]
    return xr.DataArray(values, dims=dims, coords={"seed": np.arange(len(values))}, attrs=attributes)


def make_evidence(effects, **fields) -> Evidence:
    """Evidence of an array `seed` or `seed prompt`; without prompts, as if they had been enumerated."""
    effects = along_seeds(effects, unit="logits") if isinstance(effects, list | np.ndarray) else effects
    return Evidence(**{"effects": effects, "prompts": "enumerated", **fields})


def clearing(n_clear: int, n: int) -> np.ndarray:
    """Effects of n seeds, n_clear of which are above `MARGIN` and the others below."""
    return np.where(np.arange(n) < n_clear, MARGIN + 0.5, MARGIN - 0.25)
