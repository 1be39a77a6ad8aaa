"""Effects over seeds as strips of points, with the margin, the side that clears it, and controls beside the seeds.

The scale is that of the judged seeds and of the margin. Points far beyond it, as those of controls often are, stand at
the edge with an arrow and their value.
"""

import textwrap

import numpy as np
import plotly.graph_objects as go

from mnemoscope.judging.claim import Criterion
from mnemoscope.judging.verdict import PartResult, Ruling
from mnemoscope.viz.rulings.columns import LOOKS, Points, points_of
from mnemoscope.viz.rulings.margins import frame, show_margin, window
from mnemoscope.viz.rulings.words import number, unit_of

_WIDTH = 11
"""Characters in a line under a column."""
_NAMED = 6
"""How many points without a value are named."""


def strip_plots(ruling: Ruling) -> list[tuple[go.Figure, str]]:
    """One figure a part, with its caption."""
    results = {result.name: result for result in ruling.verdict.parts}
    return [_strip(ruling, part, results[part.name]) for part in ruling.claim.criteria]


def _strip(ruling: Ruling, part: Criterion, result: PartResult) -> tuple[go.Figure, str]:
    columns = points_of(ruling, part.name)
    judged = [points.values for points in columns if points.kind == "judged"]
    shown = window(part, np.concatenate([*judged, []]), np.concatenate([p.values for p in columns]))
    figure = go.Figure()
    for points in columns:
        figure.add_trace(_trace(points, shown))
    figure.add_trace(_mean(result, shown))
    show_margin(figure, part, shown)
    _arrows(figure, columns, shown)
    names = {points.column: points.centre if points.kind in ("positive", "negative") else 0.0 for points in columns}
    ticks = ["<br>".join(textwrap.wrap(name, _WIDTH)) for name in names]
    lines_below = max((tick.count("<br>") + 1 for tick in ticks), default=1)
    last = max(names.values(), default=0.0)
    figure.update_xaxes(
        tickvals=list(names.values()), ticktext=ticks, range=[-1.15, max(last + 0.6, 1.25)], showgrid=False
    )
    frame(figure, part.name, unit_of(ruling, part.name), shown, lines_below=lines_below)
    return figure, result.finding + "." + _missing(columns)


def _trace(points: Points, shown: tuple[float, float]) -> go.Scatter:
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
        text=[f"{label}{about}: {number(v)}" for label, v in zip(points.labels, points.values.tolist(), strict=True)],
        hovertemplate="%{text}<extra></extra>",
        cliponaxis=False,
    )


def _mean(result: PartResult, shown: tuple[float, float]) -> go.Scatter:
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
        text=[f"mean: {number(result.effect)}, {result.effect_interval}"],
        hovertemplate="%{text}<extra></extra>",
    )


def _arrows(figure: go.Figure, columns: list[Points], shown: tuple[float, float]) -> None:
    """The furthest value of every column that leaves the scale."""
    low, high = shown
    for points in columns:
        for values, edge, sign, furthest in (
            (points.values[points.values > high], high, "↑", np.max),
            (points.values[points.values < low], low, "↓", np.min),
        ):
            if values.size:
                x = points.x[np.isin(points.values, values)].mean()
                text = f"{sign} {number(float(furthest(values)), '.3g')}"
                shift = -12 if edge == high else 12
                figure.add_annotation(x=float(x), y=edge, text=text, showarrow=False, yshift=shift, font={"size": 11})


def _missing(columns: list[Points]) -> str:
    lost = [label for points in columns for label, v in zip(points.labels, points.values, strict=True) if np.isnan(v)]
    names = ", ".join(lost) if len(lost) <= _NAMED else f"{len(lost)} of the points"
    return f" Without a value: {names}." if lost else ""
