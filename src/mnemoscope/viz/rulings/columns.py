"""The points of a strip plot: seeds that are judged, seeds that fail the gate, and the cases of every control."""

from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Float

from mnemoscope.judging.evidence import named
from mnemoscope.judging.verdict import Ruling


@dataclass(frozen=True, kw_only=True)
class Look:
    """Symbol and colour; kinds differ in both."""

    symbol: str
    colour: str
    sign: str
    name: str
    size: int = 7


LOOKS = {
    "judged": Look(symbol="circle", colour="#1f5fbf", sign="●", name="judged"),
    "fails the gate": Look(symbol="circle-open", colour="#7b8494", sign="○", name="fails the gate"),
    "positive": Look(symbol="triangle-up", colour="#00705a", sign="▲", name="positive control", size=9),
    "negative": Look(symbol="diamond", colour="#b4480f", sign="◆", name="negative control", size=9),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Points:
    """Points of one kind, spread along x in the order of their labels.

    Attributes:
        kind: One of `LOOKS`.
        column: What stands under them.
        x: Where.
        values: The effect; NaN is not drawn.
        labels: What each point is called.
    """

    kind: str
    column: str
    x: Float[np.ndarray, " point"]
    values: Float[np.ndarray, " point"]
    labels: list[str]

    @property
    def centre(self) -> float:
        """Of their column."""
        return float(self.x.min() + self.x.max()) / 2 if self.x.size else 0.0


def points_of(ruling: Ruling, name: str) -> list[Points]:
    """Of one effect: replicates first, then the controls in the order in which they were declared."""
    claim, evidence = ruling.claim, ruling.evidence
    values = by_case(named(evidence.effects, name))
    judged = np.full(values.size, True) if claim.gate is None else claim.gate.passes(evidence.gate)
    x = _spread(values.size, 0.0, 0.9)
    names = [f"{evidence.replicate} {label}" for label in evidence.labels]
    found = []
    for kind, chosen in (("judged", judged), ("fails the gate", ~judged)):
        labels = [name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen]
        points = Points(kind=kind, column=f"{evidence.replicate}s", x=x[chosen], values=values[chosen], labels=labels)
        found.append(points)
    declared = [control for control in claim.controls if control.name in evidence.controls]
    for i, control in enumerate(declared):
        given = by_case(named(evidence.controls[control.name], name))
        labels = [f"{control.name}, case {case}" for case in range(given.size)]
        x = _spread(given.size, 1.75 + i, 0.25)
        found.append(Points(kind=control.kind, column=control.name, x=x, values=given, labels=labels))
    return [points for points in found if points.x.size]


def by_case(effect: xr.DataArray) -> Float[np.ndarray, " case"]:
    """One number a case: the mean over prompts."""
    effect = effect.astype(float)
    return np.atleast_1d((effect.mean("prompt") if "prompt" in effect.dims else effect).to_numpy())


def _spread(n: int, centre: float, half: float) -> Float[np.ndarray, " point"]:
    return np.linspace(centre - half, centre + half, n) if n > 1 else np.full(n, centre)
