"""Effects of a ruling as curves over training, with the margin and the side that clears it."""

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from mnemoscope.claims.claim import GATE, Criterion
from mnemoscope.claims.verdict import Ruling
from mnemoscope.report.rulings.plots import by_case, frame, show_margin, window
from mnemoscope.report.rulings.words import number, unit_of


def emergence_plots(ruling: Ruling) -> list[tuple[go.Figure, str]]:
    """One figure per part along the training step, and one of the gate's quantities if they were measured too."""
    effects = ruling.emergence
    if effects is None:
        return []
    plots = [
        (_plot(effects[part.name], part, unit_of(ruling, part.name)), "")
        for part in ruling.claim.criteria
        if part.name in effects
    ]
    gate = ruling.claim.gate
    if gate is not None and GATE in effects and np.isfinite(gate.at_least):
        part = Criterion(name=GATE, quantifier="every", margin=gate.at_least)
        plots.append((_plot(effects[GATE], part, ""), f"Gate: {gate.statement}."))
    return plots


def _plot(effect: xr.DataArray, part: Criterion, unit: str) -> go.Figure:
    steps, values = effect.step.to_numpy(), by_case(effect)
    finite = values[np.isfinite(values)]
    shown = window(part, finite, finite)
    places = _places(steps)
    figure = go.Figure(
        go.Scatter(
            x=places,
            y=[float(value) if np.isfinite(value) else None for value in values],
            mode="lines+markers",
            line={"color": "#1f5fbf", "width": 1.5},
            marker={"size": 5},
            text=[f"step {step:,}: {number(v)}" for step, v in zip(steps.tolist(), values.tolist(), strict=True)],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    show_margin(figure, part, shown)
    ticks = _ticks(steps)
    figure.update_xaxes(
        type="log", title="training step", tickvals=list(ticks), ticktext=list(ticks.values()), showgrid=False
    )
    frame(figure, part.name, unit, shown, lines_below=3)
    return figure


def _places(steps: np.ndarray) -> list[float]:
    """Steps on a logarithmic axis, where step 0 has no place: it stands at a third of the first one after it."""
    return np.where(steps > 0, steps, _origin(steps)).tolist()


def _origin(steps: np.ndarray) -> float:
    later = steps[steps > 0]
    return float(later.min() if later.size else 3) / 3


def _ticks(steps: np.ndarray) -> dict[float, str]:
    """Place to label: powers of ten, with 2 and 5 times them if there are few, and 0."""
    later = steps[steps > 0]
    ticks = {_origin(steps): "0"} if (steps == 0).any() else {}
    for factors in ((1,), (1, 2, 5)):
        marks = [factor * 10**power for power in range(9) for factor in factors]
        marks = [mark for mark in marks if later.size and later.min() <= mark <= later.max()]
        if len(marks) >= 3:
            break
    return ticks | {float(mark): f"{mark:,}" for mark in marks}
