"""What every plot of an effect shares: its scale, the margin with the side that clears it, and the frame."""

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mnemoscope.judging.claim import Criterion

_HEIGHT = 235
_BEYOND = 1.0
"""How far from judged effects and margin other points are still drawn where they are, in units of their range."""
_PAD = 0.08
_CLEARS = "rgba(31, 95, 191, 0.10)"
_INK = "#1d2433"
_LINE = {"color": _INK, "width": 1.2, "dash": "dash"}


def lines(part: Criterion) -> list[float]:
    """Where the margin lies: at two places if the effect must lie within it."""
    return [-part.margin, part.margin] if part.direction == "within" else [part.margin]


def window(
    part: Criterion, judged: Float[np.ndarray, " judged"], others: Float[np.ndarray, " other"]
) -> tuple[float, float]:
    """Least and greatest value that are drawn where they are."""
    core = np.r_[lines(part), judged[np.isfinite(judged)]]
    low, high = float(core.min()), float(core.max())
    span = (high - low) or abs(high) or 1.0
    near = others[(others >= low - _BEYOND * span) & (others <= high + _BEYOND * span)]
    low, high = min(low, *near.tolist(), low), max(high, *near.tolist(), high)
    return (low, high) if high > low else (low - span / 2, high + span / 2)


def show_margin(figure: go.Figure, part: Criterion, shown: tuple[float, float]) -> None:
    """The margin as a dashed line, and the side that clears it shaded."""
    low, high = _padded(shown)
    side = {"above": (part.margin, high), "below": (low, part.margin), "within": (-part.margin, part.margin)}
    below, above = side[part.direction]
    whole = {"xref": "paper", "x0": 0, "x1": 1}
    side_shape = {"type": "rect", "y0": below, "y1": above, "fillcolor": _CLEARS, "line_width": 0, "layer": "below"}
    shapes = [{**whole, **side_shape}]
    shapes += [{**whole, "type": "line", "y0": line, "y1": line, "line": _LINE} for line in lines(part)]
    figure.update_layout(shapes=shapes)


def frame(figure: go.Figure, name: str, unit: str, shown: tuple[float, float], *, lines_below: int) -> None:
    """Title, axes and size, the same for every plot of an effect; so many lines of text stand below it."""
    figure.update_yaxes(range=list(_padded(shown)), gridcolor="#e6eaf0", zeroline=False, nticks=6)
    figure.update_xaxes(showline=True, linecolor="#aab2bf", zeroline=False)
    figure.update_layout(
        template="none",
        title={"text": f"{name} ({unit})" if unit else name, "x": 0, "xref": "paper", "font": {"size": 13}},
        font={"family": "system-ui, sans-serif", "size": 11, "color": _INK},
        margin={"l": 48, "r": 12, "t": 38, "b": 12 + 15 * lines_below},
        height=_HEIGHT + 15 * lines_below,
        showlegend=False,
    )


def _padded(shown: tuple[float, float]) -> tuple[float, float]:
    pad = _PAD * (shown[1] - shown[0])
    return shown[0] - pad, shown[1] + pad
