"""Effects of a ruling as strips of points over seeds and as curves over training, with the margin.

The side of the margin that clears it is shaded. A strip has a column for the seeds and one for each control, called C
and its number in the order in which they were declared. Its scale is that of the judged seeds and of the margin. Points
far beyond it, often those of controls, stand at the edge with an arrow and their value.
"""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from jaxtyping import Float

from mnemoscope.claims.claim import GATE, Claim, Control, Criterion
from mnemoscope.claims.evidence import select_effect
from mnemoscope.claims.ruling import Ruling
from mnemoscope.claims.verdict import PartResult
from mnemoscope.report.rulings.differences import format_number
from mnemoscope.report.rulings.words import case_means, effect_unit

_HEIGHT = 235
_BEYOND = 1.0
"""Largest distance from judged effects and margin to points drawn at their place, in units of their range."""
_PAD = 0.08
_CLEARS = "rgba(31, 95, 191, 0.10)"
_INK = "#1d2433"
_LINE = {"color": _INK, "width": 1.2, "dash": "dash"}
_NAMED = 6
"""Most points without a value that are named."""


@dataclass(frozen=True, kw_only=True)
class PointStyle:
    """Symbol and colour; kinds differ in both."""

    symbol: str
    colour: str
    sign: str
    name: str
    size: int = 7


LOOKS = {
    "judged": PointStyle(symbol="circle", colour="#1f5fbf", sign="●", name="judged"),
    "fails the gate": PointStyle(symbol="circle-open", colour="#7b8494", sign="○", name="fails the gate"),
    "positive": PointStyle(symbol="triangle-up", colour="#00705a", sign="▲", name="positive control", size=9),
    "negative": PointStyle(symbol="diamond", colour="#b4480f", sign="◆", name="negative control", size=9),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class PointGroup:
    """Points of one kind (see `LOOKS`), spread along x in the order of their labels; NaN is not drawn."""

    kind: str
    column: str
    x: Float[np.ndarray, " point"]
    values: Float[np.ndarray, " point"]
    labels: list[str]

    @property
    def centre(self) -> float:
        """The centre of their column."""
        return float(self.x.min() + self.x.max()) / 2 if self.x.size else 0.0


def strip_plots(ruling: Ruling) -> list[tuple[go.Figure, str]]:
    """One figure per part, with its caption."""
    results = {result.name: result for result in ruling.verdict.parts}
    return [_strip(ruling, part, results[part.name]) for part in ruling.claim.criteria]


def _strip(ruling: Ruling, part: Criterion, result: PartResult) -> tuple[go.Figure, str]:
    columns = effect_points(ruling, part.name)
    judged = [points.values for points in columns if points.kind == "judged"]
    shown = plot_range(part, np.concatenate([*judged, []]), np.concatenate([p.values for p in columns]))
    figure = go.Figure()
    for points in columns:
        figure.add_trace(_trace(points, shown))
    figure.add_trace(_mean_trace(result, shown))
    show_margin(figure, part, shown)
    _mark_outliers(figure, columns, shown)
    names = {points.column: points.centre if points.kind in ("positive", "negative") else 0.0 for points in columns}
    last = max(names.values(), default=0.0)
    figure.update_xaxes(
        tickvals=list(names.values()),
        ticktext=list(names),
        tickangle=0,
        range=[-1.15, max(last + 0.6, 1.25)],
        showgrid=False,
    )
    set_frame(figure, part.name, effect_unit(ruling, part.name), shown, lines_below=1)
    finding = result.finding if ruling.verdict.n else f"no {ruling.claim.replicate} is judged"
    return figure, f"{finding}.{_missing(columns)}"


def _trace(points: PointGroup, shown: tuple[float, float]) -> go.Scatter:
    look = LOOKS[points.kind]
    about = "" if points.kind == "judged" else f" ({look.name})"
    return go.Scatter(
        x=points.x.round(4).tolist(),
        y=[None if np.isnan(value) else float(value) for value in points.values.clip(*shown)],
        mode="markers",
        name=points.kind,
        marker={
            "symbol": look.symbol,
            "color": look.colour,
            "size": look.size,
            "line": {"width": 1, "color": look.colour},
        },
        text=[
            f"{label}{about}: {format_number(v)}"
            for label, v in zip(points.labels, points.values.tolist(), strict=True)
        ],
        hovertemplate="%{text}<extra></extra>",
        cliponaxis=False,
    )


def _mean_trace(result: PartResult, shown: tuple[float, float]) -> go.Scatter:
    """Mean of the judged seeds with its interval, at the right edge of their column."""
    low, high = np.clip([result.effect_interval.low, result.effect_interval.high], *shown).tolist()
    drawn = bool(np.isfinite(result.effect))
    known = drawn and bool(np.isfinite([result.effect_interval.low, result.effect_interval.high]).all())
    y = float(np.clip(result.effect, *shown)) if drawn else None
    bars = (
        {"type": "data", "symmetric": False, "array": [high - y], "arrayminus": [y - low]}
        if known and y is not None
        else None
    )
    return go.Scatter(
        x=[1.12],
        y=[y],
        error_y=bars,
        mode="markers",
        name="mean",
        marker={"symbol": "line-ew-open", "color": "#1d2433", "size": 9, "line": {"width": 2}},
        text=[f"mean: {format_number(result.effect)}, {result.effect_interval}"],
        hovertemplate="%{text}<extra></extra>",
    )


def _mark_outliers(figure: go.Figure, columns: list[PointGroup], shown: tuple[float, float]) -> None:
    """The furthest value of every column that leaves the scale."""
    low, high = shown
    for points in columns:
        for values, edge, sign, furthest in (
            (points.values[points.values > high], high, "↑", np.max),
            (points.values[points.values < low], low, "↓", np.min),
        ):
            if values.size:
                x = points.x[np.isin(points.values, values)].mean()
                text = f"{sign} {format_number(float(furthest(values)), '.3g')}"
                shift = -12 if edge == high else 12
                figure.add_annotation(x=float(x), y=edge, text=text, showarrow=False, yshift=shift, font={"size": 11})


def _missing(columns: list[PointGroup]) -> str:
    lost = [label for points in columns for label, v in zip(points.labels, points.values, strict=True) if np.isnan(v)]
    names = ", ".join(lost) if len(lost) <= _NAMED else f"{len(lost)} of the points"
    return f" Without a value: {names}." if lost else ""


def effect_points(ruling: Ruling, name: str) -> list[PointGroup]:
    """The points of one effect: replicates first, then the controls in the order in which they were declared."""
    claim, evidence = ruling.claim, ruling.evidence
    values = case_means(select_effect(evidence.effects, name))
    judged = np.full(values.size, True) if claim.gate is None else claim.gate.passes(evidence.gate)
    x = _spread_points(values.size, 0.0, 0.9)
    names = [f"{evidence.replicate} {label}" for label in evidence.labels]
    found = []
    for kind, chosen in (("judged", judged), ("fails the gate", ~judged)):
        labels = [name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen]
        points = PointGroup(
            kind=kind, column=f"{evidence.replicate}s", x=x[chosen], values=values[chosen], labels=labels
        )
        found.append(points)
    declared = {short: control for short, control in short_names(claim).items() if control.name in evidence.controls}
    for i, (short, control) in enumerate(declared.items()):
        given = case_means(select_effect(evidence.controls[control.name], name))
        labels = [f"{control.name}, case {case}" for case in range(given.size)]
        x = _spread_points(given.size, 1.75 + i, 0.25)
        found.append(PointGroup(kind=control.kind, column=short, x=x, values=given, labels=labels))
    return [points for points in found if points.x.size]


def short_names(claim: Claim) -> dict[str, Control]:
    """The controls of a claim by the names of their columns."""
    return {f"C{i}": control for i, control in enumerate(claim.controls, 1)}


def _spread_points(n: int, centre: float, half: float) -> Float[np.ndarray, " point"]:
    return np.linspace(centre - half, centre + half, n) if n > 1 else np.full(n, centre)


def margin_places(part: Criterion) -> list[float]:
    """The places of the margin: two if the effect must lie within it."""
    return [-part.margin, part.margin] if part.direction == "within" else [part.margin]


def plot_range(
    part: Criterion, judged: Float[np.ndarray, " judged"], others: Float[np.ndarray, " other"]
) -> tuple[float, float]:
    """Least and greatest value that are drawn where they are."""
    core = np.r_[margin_places(part), judged[np.isfinite(judged)]]
    low, high = float(core.min()), float(core.max())
    span = (high - low) or abs(high) or 1.0
    near = others[(others >= low - _BEYOND * span) & (others <= high + _BEYOND * span)]
    low, high = min(low, *near.tolist(), low), max(high, *near.tolist(), high)
    return (low, high) if high > low else (low - span / 2, high + span / 2)


def show_margin(figure: go.Figure, part: Criterion, shown: tuple[float, float]) -> None:
    """The margin as a dashed line, and the side that clears it shaded."""
    low, high = _pad_range(shown)
    side = {"above": (part.margin, high), "below": (low, part.margin), "within": (-part.margin, part.margin)}
    below, above = side[part.direction]
    whole = {"xref": "paper", "x0": 0, "x1": 1}
    side_shape = {"type": "rect", "y0": below, "y1": above, "fillcolor": _CLEARS, "line_width": 0, "layer": "below"}
    shapes = [{**whole, **side_shape}]
    shapes += [{**whole, "type": "line", "y0": line, "y1": line, "line": _LINE} for line in margin_places(part)]
    figure.update_layout(shapes=shapes)


def set_frame(figure: go.Figure, name: str, unit: str, shown: tuple[float, float], *, lines_below: int) -> None:
    """Title, axes and size, the same for every plot of an effect; so many lines of text stand below it."""
    figure.update_yaxes(range=list(_pad_range(shown)), gridcolor="#e6eaf0", zeroline=False, nticks=6)
    figure.update_xaxes(showline=True, linecolor="#aab2bf", zeroline=False)
    figure.update_layout(
        template="none",
        title={"text": f"{name} ({unit})" if unit else name, "x": 0, "xref": "paper", "font": {"size": 13}},
        font={"family": "system-ui, sans-serif", "size": 11, "color": _INK},
        margin={"l": 48, "r": 12, "t": 38, "b": 12 + 15 * lines_below},
        height=_HEIGHT + 15 * lines_below,
        showlegend=False,
    )


def _pad_range(shown: tuple[float, float]) -> tuple[float, float]:
    pad = _PAD * (shown[1] - shown[0])
    return shown[0] - pad, shown[1] + pad


# ---- over training


def emergence_plots(ruling: Ruling) -> list[tuple[go.Figure, str]]:
    """One figure per part along the training step, and one of the gate's quantities if they were measured too."""
    effects = ruling.emergence
    if effects is None:
        return []
    plots = [
        (_curve(effects[part.name], part, effect_unit(ruling, part.name)), "")
        for part in ruling.claim.criteria
        if part.name in effects
    ]
    gate = ruling.claim.gate
    if gate is not None and GATE in effects and np.isfinite(gate.at_least):
        part = Criterion(name=GATE, quantifier="every", margin=gate.at_least)
        plots.append((_curve(effects[GATE], part, ""), f"Gate: {gate.statement}."))
    return plots


def _curve(effect: xr.DataArray, part: Criterion, unit: str) -> go.Figure:
    steps, values = effect.step.to_numpy(), case_means(effect)
    finite = values[np.isfinite(values)]
    shown = plot_range(part, finite, finite)
    places = _on_log_axis(steps)
    figure = go.Figure(
        go.Scatter(
            x=places,
            y=[float(value) if np.isfinite(value) else None for value in values],
            mode="lines+markers",
            line={"color": "#1f5fbf", "width": 1.5},
            marker={"size": 5},
            text=[
                f"step {step:,}: {format_number(v)}" for step, v in zip(steps.tolist(), values.tolist(), strict=True)
            ],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    show_margin(figure, part, shown)
    ticks = _ticks(steps)
    figure.update_xaxes(
        type="log", title="training step", tickvals=list(ticks), ticktext=list(ticks.values()), showgrid=False
    )
    set_frame(figure, part.name, unit, shown, lines_below=3)
    return figure


def _on_log_axis(steps: np.ndarray) -> list[float]:
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
