"""A claim before any run: its controls as the runner takes them, and verdicts on planted replicates."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import xarray as xr

from mnemoscope.claims.claim import Claim
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.functions import in_package, modules_of
from mnemoscope.claims.judge import find_control_fault, judge
from mnemoscope.claims.measures import ControlWork, MeasureCall, do_work
from mnemoscope.models.subjects import Subject

STORE: Path | None = None
"""The directory where the processes of a session keep what they measure of the controls that claims name."""


@lru_cache(maxsize=2)
def _planted(plant, case):
    return plant(case)


@lru_cache(maxsize=64)
def taken(plant, case, compare, call):
    """What a call says of one case of a plant, measured once a session if packages hold all functions."""
    work = ControlWork(plant, case, compare, calls=(call,))
    functions = [each for each in (call.measure, plant, compare) if each is not None]
    if all(in_package(module) for each in functions for module in modules_of(each)):
        return do_work(work, store=STORE)[call.key]
    return work.take(call, _planted(plant, case))


def controls_of(claim: Claim, *, most: int = 1, **factors) -> dict[str, xr.Dataset]:
    """What the claim's measure says of its controls, at most so many cases of each."""
    assert claim.measure is not None
    call = MeasureCall(claim.measure, tuple(sorted(factors.items())))
    found = {}
    for control in claim.controls:
        cases = [taken(control.plant, case, claim.compare, call) for case in range(min(most, control.n))]
        found[control.name] = xr.Dataset({name: _along("case", [case[name] for case in cases]) for name in cases[0]})
    return found


def _along(dim, values):
    """Numbers along a dimension, or so many numbers per prompt."""
    values = np.asarray(values)
    return (dim, "prompt")[: values.ndim], values


def trouble(claim: Claim, *, most: int = 1, **factors) -> str | None:
    """What is wrong with the claim's controls, if anything is."""
    effects = {part.name: ("seed", np.zeros(1)) for part in claim.criteria}
    evidence = Evidence(
        effects=xr.Dataset(effects, coords={"seed": [0]}).rename(seed=claim.replicate),
        controls=controls_of(claim, most=most, **factors),
        replicate=claim.replicate,
    )
    return find_control_fault(claim, evidence)


def verdict(claim: Claim, measured, *, n: int | None = None):
    """The verdict if every replicate were measured like this one (or, given several, like them in turn)."""
    each = measured if isinstance(measured, list) else [measured]
    n = claim.n_replicates if n is None else n
    coords = {claim.replicate: np.arange(n)}
    values = {
        name: _along(claim.replicate, [each[i % len(each)][name] for i in range(n)])
        for name in each[0]
        if name != "gate"
    }
    gate = None
    if claim.gate is not None:
        gate = xr.DataArray([each[i % len(each)]["gate"] for i in range(n)], coords=coords)
    evidence = Evidence(
        effects=xr.Dataset(values, coords=coords), gate=gate, prompts=claim.prompts, replicate=claim.replicate
    )
    return judge(replace(claim, controls=()), evidence)


def on(model, task, seed: int = 0) -> Subject:
    return Subject(model=model, task=task.for_seed(seed), seed=seed)
