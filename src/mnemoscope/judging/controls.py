"""Whether the instrument did what it must where the answer is known."""

import numpy as np
import xarray as xr
from jaxtyping import Bool

from mnemoscope.core.errors import InputError
from mnemoscope.judging.claim import Claim
from mnemoscope.judging.criteria import Control, Criterion
from mnemoscope.judging.evidence import Effects, Evidence, named


def misbehaviour(claim: Claim, evidence: Evidence) -> str | None:
    """What is wrong with the controls, or nothing.

    Raises:
        InputError: The evidence has a control that the claim did not declare, or one has dimensions that cannot be
            reduced.
    """
    declared = [control.name for control in claim.controls]
    undeclared = sorted(set(evidence.controls) - set(declared))
    if undeclared:
        raise InputError(f"controls of {claim.id} are declared beforehand: {declared}; got also {undeclared}")
    for control in claim.controls:
        if control.name not in evidence.controls:
            return f"the control {control.name} was not measured"
        holds = _holds(claim, control, evidence.controls[control.name])
        wrong = ~holds if control.kind == "positive" else holds
        if wrong.mean() > control.tolerated:
            which = f"in {wrong.sum()} of {wrong.size} " if wrong.size > 1 else ""
            criterion = "does not meet the criterion, and it must" if control.kind == "positive" else "meets it too"
            return f"the {control.kind} control {control.name} misbehaves: {which}it {criterion}"
    return None


def _holds(claim: Claim, control: Control, effects: Effects) -> Bool[np.ndarray, " case"]:
    """Whether the claim would hold, in each replicate of a control; NaN does not count as holding."""
    parts = [_clears(part, control, named(effects, part.name)) for part in claim.criteria]
    return (np.all if claim.joined == "all" else np.any)(np.broadcast_arrays(*parts), axis=0)


def _clears(part: Criterion, control: Control, effects: xr.DataArray) -> Bool[np.ndarray, " case"]:
    """Whether the effect of each replicate clears the margin; where the claim is about a mean, whether theirs does."""
    cases = effects.astype(float).mean("prompt") if "prompt" in effects.dims else effects.astype(float)
    if cases.ndim > 1:
        raise InputError(f"control {control.name} may have one dimension and prompt; got {effects.dims}")
    values = np.atleast_1d(cases.to_numpy())
    if part.quantifier in ("mean", "equivalence"):
        values = np.full_like(values, values.mean())
    return part.slack(values) > 0
