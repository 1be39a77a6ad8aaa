"""Values of claims' measures on the claims' own controls: the numbers by which a registration knows a measure.

Kept are, of the first case of every control, the effects that decide and the gate: to twelve digits, not as a digest,
since a rounded number flips at the edge of its rounding. An array is kept as its size, how many of its numbers are
finite, and their mean, smallest and largest.

Two measurements agree if no number differs by more than a tolerance, relative where numbers are larger than 1. Measured
anew on the machine of the registration, by the same numerical version of the library, the tolerance is 1e-9: there the
same operations give the same bits. Anywhere else it is 1e-5: models compute in float32, other processors add in another
order, and a logit near 10 moves by 1e-6. What a trial has measured may come from a store, hence from another machine,
so that it is compared by 1e-5 too.

Where two candidates are nearly alike, a measure that counts or takes the largest can differ by more on another machine.
So other values of unmoved code elsewhere are told, and are no departure (`registered.Standing`).

*Does not show* what a measure gives where factors are varied, nor on trained models.
"""

import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mnemoscope.claims.claim import GATE, Claim, Measured
from mnemoscope.claims.measuring import Call, OfPlant, Results, Work, measure_all, merged
from mnemoscope.claims.questions import of_model
from mnemoscope.core.version import NUMBERS

HERE, ELSEWHERE = 1e-9, 1e-5
"""Tolerances for what was measured anew on the machine of the registration, and for all else."""

Values = Mapping[str, Mapping[str, Sequence[float | str]]]
"""Values by control and effect; a number that is not finite is a word, as JSON has none."""


def machine() -> str:
    """The parts of a machine that decide the last bits: processor, torch's instructions on it, torch, our numbers."""
    model = platform.processor() or platform.machine()
    if (cpuinfo := Path("/proc/cpuinfo")).is_file():
        named = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        model = named[1] if named else model
    return f"{model}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}, numbers {NUMBERS}"


def behaviour(
    claims: Iterable[Claim], *, jobs: int = 1, report: Callable[[Work], None] | None = None
) -> dict[str, Values]:
    """Measure the controls of claims and their rivals; values by id. `jobs` 0: one process per core.

    The measures must be functions that their names identify.
    """
    each = (one for claim in claims for one in (claim, *claim.rivals))
    asked = [(one, Call(one.measure)) for one in each if one.measure is not None]
    work = [piece for one, call in asked for piece in _planted(one, call).values()]
    return values_in(asked, measure_all(merged(work), jobs=jobs, store=None, report=report))


def values_in(asked: Iterable[tuple[Claim, Call]], results: Results) -> dict[str, Values]:
    """The values of claims and rivals, by id, among what was measured."""
    found: dict[str, Values] = {}
    for claim, call in asked:
        cases = {name: results[piece.name][call.key] for name, piece in _planted(claim, call).items()}
        if claim.of_language_models:
            cases = {name: of_model(claim, case) for name, case in cases.items()}
        found[claim.id] = {name: numbers(claim, case) for name, case in cases.items()}
    return found


def _planted(claim: Claim, call: Call) -> dict[str, OfPlant]:
    """The first case of every control."""
    return {c.name: OfPlant(c.plant, 0, claim.compare, (call,)) for c in claim.controls if c.plant is not None}


def numbers(claim: Claim, measured: Measured) -> dict[str, list[float | str]]:
    """The numbers to be kept of one case of a control."""
    names = [*(part.name for part in claim.criteria), GATE]
    return {name: list(map(_plain, _summary(measured[name]))) for name in names if name in measured}


def _summary(value: Any) -> list[float]:
    values = np.asarray(value, dtype=float)
    if not values.ndim:
        return [float(values)]
    finite = values[np.isfinite(values)]
    return [values.size, finite.size, *((finite.mean(), finite.min(), finite.max()) if finite.size else ())]


def _plain(value: float) -> float | str:
    return float(f"{value:.12g}") if np.isfinite(value) else str(float(value))


def distance(now: Values, then: Values) -> float:
    """The largest difference of two measurements; infinite where a number stands in one only."""
    if {control: set(each) for control, each in now.items()} != {control: set(each) for control, each in then.items()}:
        return np.inf
    pairs = [(now[control][name], then[control][name]) for control in now for name in now[control]]
    return max((_distance(np.array(a, dtype=float), np.array(b, dtype=float)) for a, b in pairs), default=0.0)


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return np.inf
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return np.inf
    a, b = a[finite], b[finite]
    return float((np.abs(a - b) / np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))).max(initial=0.0))
