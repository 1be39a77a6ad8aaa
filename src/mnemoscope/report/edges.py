"""A circuit of edges between the parts of a model, as a picture.

Parts stand on a grid: a row for the embeddings, then for every layer one for its heads and one for its MLP, the logits
last; heads in columns, MLPs in a separate column to the right, features side by side. Every row is one unit high, every
column one unit wide. An edge is a curve that leaves a part upwards and enters another from below. If it would cross a
part on its way, it runs through the gap between two columns instead, where each edge has a separate lane. The same
edges always give the same drawing.
"""

import math
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from jaxtyping import Float
from plotly.colors import sample_colorscale

from mnemoscope.analyses.roles import HEAD, rename_heads
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.site import EMBEDDINGS, LOGITS, MLP_PARTS, OF_DICTIONARY, Edge, Site, part_name
from mnemoscope.report.figures import LAYOUT

Node = Site | Literal["logits"]
Curve = Float[np.ndarray, "point 2"]

HALF_WIDTH, HALF_HEIGHT = 0.33, 0.25
PORTS = {"q": -0.2, "k": 0.0, "v": 0.2, None: 0.3}
"""Distance from the middle of a head to where an edge ends, by what the head reads through; none: all three."""
_APART = 0.07
"""Distance between two edges that leave or enter a part side by side."""
_LANES = tuple(0.045 * lane for lane in (0, -1, 1, -2, 2, -3, 3))
"""Distances from the middle of a gap between columns."""
_UPRIGHT = 0.13
"""Length of the vertical end of an edge: that of an arrowhead."""
_N_POINTS = 24
MOST_DRAWN = 20
"""Edges that are drawn of a graph with features."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """The place of a part in a drawing: its middle, and how far it reaches to either side."""

    x: float
    y: float
    half_width: float = HALF_WIDTH

    def near(self, curve: Curve) -> bool:
        """True if a curve comes into the box or close to its border."""
        away = np.abs(curve - (self.x, self.y)) - (self.half_width + 0.03, HALF_HEIGHT + 0.03)
        return bool((away < 0).all(1).any())


def place_parts(edges: Sequence[Edge]) -> dict[Node, Box]:
    """A box for every part that an edge starts or ends at, from the embeddings to the logits."""
    rows: dict[float, list[Node]] = defaultdict(list)
    parts: set[Node] = {part for edge in edges for part in (edge.writer, edge.reader)}
    for part in sorted(parts, key=_layer_order):
        rows[_layer_order(part)[0]].append(part)
    side_by_side = [row for row in rows.values() if _is_head(row[0]) or (len(row) > 1 and not is_bar(row[0]))]
    n_heads = max((len(row) for row in side_by_side), default=0)
    has_mlp = any(len(row) == 1 and part != LOGITS and part.kind in MLP_PARTS for row in rows.values() for part in row)
    n_columns = max(1, n_heads + has_mlp)
    found: dict[Node, Box] = {}
    for y, row in enumerate(rows.values()):
        for i, part in enumerate(row):
            if is_bar(part):
                reach = n_columns / len(row) / 2
                found[part] = Box(x=(2 * i + 1) * reach - 0.5, y=y, half_width=reach - 0.5 + HALF_WIDTH)
            else:
                found[part] = Box(x=i + (n_heads - len(row)) // 2 if row in side_by_side else n_columns - 1, y=y)
    return found


def is_bar(part: Node) -> bool:
    """True for parts that are drawn across the columns: embeddings and logits."""
    return part == LOGITS or part.layer is None or part.kind == "resid_pre"


def route_edges(edges: Sequence[Edge], boxes: Mapping[Node, Box]) -> list[Curve]:
    """The curve of every edge, from its writer to its reader."""
    starts, ends = _ends(edges, boxes)
    taken: dict[float, list[tuple[float, float]]] = defaultdict(list)
    curves = []
    for edge, x0, x1 in zip(edges, starts, ends, strict=True):
        start, end = (x0, boxes[edge.writer].y + HALF_HEIGHT), (x1, boxes[edge.reader].y - HALF_HEIGHT)
        upright = (x1, end[1] - _UPRIGHT)
        curve = _s_curve(start, upright)
        others = [box for part, box in boxes.items() if part not in (edge.writer, edge.reader)]
        if any(box.near(curve) for box in others):
            curve = _through_gap(start, upright, _gaps(boxes), taken)
        curves.append(np.concatenate([curve, [end]]))
    return curves


def _layer_order(part: Node) -> tuple[float, float]:
    if part == LOGITS:
        return float("inf"), 0
    if part.layer is None or part.kind == "resid_pre":
        return -1, EMBEDDINGS.index(part.kind) if part.kind in EMBEDDINGS else 0
    number = part.neuron if isinstance(part.neuron, int) else math.inf
    return 2 * part.layer + (part.kind in MLP_PARTS), number if part.kind in MLP_PARTS else part.head or 0


def _is_head(part: Node) -> bool:
    return part != LOGITS and part.kind == "z"


def _ends(edges: Sequence[Edge], boxes: Mapping[Node, Box]) -> tuple[list[float], list[float]]:
    """The places along their writer and reader at which the edges start and end."""
    ends = [boxes[edge.reader].x + PORTS[edge.through] if _is_head(edge.reader) else None for edge in edges]
    for part, box in boxes.items():
        if not _is_head(part):
            mine = [i for i, edge in enumerate(edges) if edge.reader == part]
            for i, x in zip(
                mine, _spread_along([_preferred_end(edges[i].writer, boxes) for i in mine], box), strict=True
            ):
                ends[i] = x
    settled = [x for x in ends if x is not None]
    starts = list(settled)
    for part, box in boxes.items():
        mine = [i for i, edge in enumerate(edges) if edge.writer == part]
        for i, x in zip(mine, _spread_along([settled[i] for i in mine], box), strict=True):
            starts[i] = x
    return starts, settled


def _preferred_end(part: Node, boxes: Mapping[Node, Box]) -> float:
    """The best place for an edge at a part: above its middle; for a part as wide as the drawing, above a gap."""
    x = boxes[part].x
    return math.floor(x - 0.5) + 0.5 if is_bar(part) else x


def _spread_along(wanted: Sequence[float], box: Box) -> list[float]:
    """Places along a box, as near as possible to those wanted, in their order and apart from each other."""
    low, high = box.x - box.half_width + 0.05, box.x + box.half_width - 0.05
    gap = min(_APART, (high - low) / max(1, len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    inside = [min(max(wanted[i], low), high) for i in order]
    placed = _space_out(inside, gap)
    shift = (sum(inside) - sum(placed)) / max(1, len(placed))
    placed = _space_out([max(x + shift, low) for x in placed], gap)
    placed = [-x for x in _space_out([-min(x, high) for x in reversed(placed)], gap)]
    return [x for _, x in sorted(zip(order, reversed(placed), strict=True))]


def _space_out(ascending: Sequence[float], gap: float) -> list[float]:
    """The same numbers, moved up where one is nearer than `gap` to that before it."""
    result: list[float] = []
    for x in ascending:
        result.append(max(x, result[-1] + gap) if result else x)
    return result


def _s_curve(start: tuple[float, float], end: tuple[float, float]) -> Curve:
    """A curve that starts and ends upright."""
    t = np.linspace(0, 1, _N_POINTS)
    middle = (start[1] + end[1]) / 2
    corners = np.array([start, (start[0], middle), (end[0], middle), end])
    shares = np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], 1)
    return shares @ corners


def _gaps(boxes: Mapping[Node, Box]) -> list[float]:
    """The middle of every gap between columns, and of the space outside them."""
    right = max(box.x + box.half_width for box in boxes.values())
    return [i - 0.5 for i in range(round(right - HALF_WIDTH) + 2)]


def _through_gap(
    start: tuple[float, float],
    end: tuple[float, float],
    gaps: Sequence[float],
    taken: dict[float, list[tuple[float, float]]],
) -> Curve:
    """A curve along a lane in a near gap, free if there is a free one; `taken` gets the stretch."""
    (x0, y0), (x1, y1) = start, end

    def cost(x: float) -> float:
        return abs(x0 - x) + abs(x1 - x) + sum(low < y1 and y0 < high for low, high in taken[x])

    x = min((round(gap + lane, 3) for gap in gaps for lane in _LANES), key=lambda x: (cost(x), x))
    taken[x].append((y0, y1))
    between = 1 - 2 * HALF_HEIGHT
    first, last = _s_curve(start, (x, y0 + between)), _s_curve((x, y1 - between + _UPRIGHT), end)
    steps = np.linspace(y0 + between, y1 - between + _UPRIGHT, _N_POINTS)[1:-1]
    return np.concatenate([first, np.stack([np.full_like(steps, x), steps], 1), last])


INK, SOFT, FAINT, WASH = "#1d2433", "#5b6577", "#c3c9d3", "#f5f7fa"
NEGATIVE, POSITIVE = ("rgb(188,208,240)", "rgb(31,95,191)"), ("rgb(245,205,185)", "rgb(200,80,30)")
"""Colours of the smallest weight, which can still be seen, and of the largest."""
ROW_HEIGHT = {False: 110, True: 136}
"""Height in pixels, without and with names of what parts do."""


def circuit_figure(
    edges: Sequence[Edge],
    weights: xr.DataArray,
    included: xr.DataArray | None = None,
    *,
    names: Mapping[str, str] | None = None,
    numbered: bool = True,
    isolated: Literal["grey", "left out"] = "grey",
) -> go.Figure:
    """Parts of a model by layer, embeddings at the bottom, and the edges that lead from one to another.

    The width of an edge and the strength of its colour show its weight, in units of the largest one; the colour shows
    its sign. Edges into a head end at q, k or v, by what it reads through. Edges outside the circuit are not drawn.
    Raises InputError where there is not one weight for each edge, or a weight of the circuit is NaN.

    Args:
        edges: All edges that were studied; the parts at their ends are drawn.
        weights: Over edge (with labels `str(edge)`, or in the order of `edges`); attribute `unit` names the scale.
        included: Likewise, truth values; none: all.
        names: Descriptions of parts by their names (`L0H1`), written below these.
        numbered: Whether parts keep their names beside those of `names`. False where weights are of several models, in
            which the number of a head means nothing: its description takes their place, on edges too.
        isolated: The treatment of parts without an edge in the circuit.
    """
    one_of("isolated", isolated, ("grey", "left out"))
    weights, included = (_values_by_edge(edges, v, name) for name, v in (("weights", weights), ("included", included)))
    if weights.dims != ("edge",) or included.dims != ("edge",):
        raise InputError(
            f"weights and included must be over edge alone; got {weights.dims}; choose one seed, or a mean"
        )
    drawn = {edge: float(w) for edge, w, chosen in zip(edges, weights, included, strict=True) if chosen}
    if not np.isfinite(list(drawn.values())).all():
        raise InputError("the weight of an edge in the circuit must be a number; leave the edge out with included=")
    boxes = place_parts(edges if isolated == "grey" else list(drawn))
    scale = max((abs(w) for w in drawn.values()), default=0.0) or 1.0
    signed = min(drawn.values(), default=0.0) < 0
    curves = dict(zip(drawn, route_edges(list(drawn), boxes), strict=True))
    smallest_first = sorted(drawn, key=lambda edge: abs(drawn[edge]))
    unnumbered = {} if numbered else names or {}
    labels = {edge: HEAD.sub(lambda head: unnumbered.get(head[0], head[0]), str(edge)) for edge in drawn}
    figure = go.Figure([_line(labels[edge], curves[edge], drawn[edge], scale) for edge in smallest_first])
    _draw_parts(figure, edges, drawn, boxes, {part: _title(part, names or {}, numbered) for part in boxes})
    return _lay_out(figure, boxes, scale, signed, bool(names)).update_coloraxes(
        colorbar_title_text=str(weights.attrs.get("unit", "weight"))
    )


def role_circuit(chosen: Sequence[Edge], ratio: xr.DataArray, component: xr.DataArray) -> tuple[str, go.Figure] | None:
    """The circuit over seeds, and in words over which; none where every weight is missing.

    A mean over seeds is drawn where heads of one role lie in one layer in all of them; otherwise the first seed.
    `chosen` holds the model's edges by head number, `ratio` is by role; `component` over (seed, role) translates. Of a
    graph with features only the `MOST_DRAWN` largest edges are drawn.
    """
    heads = component.sel(role=[HEAD.fullmatch(name) is not None for name in component.isel(seed=0).values])
    names, several = _roles_by_head(heads), ratio.sizes["seed"] > 1
    words = f"mean over {ratio.sizes['seed']} seeds"
    if names is None or not several:
        first = heads.isel(seed=0)
        names = dict(zip(first.values.tolist(), first.role.values.tolist(), strict=True))
        ratio, several, words = ratio.isel(seed=[0]), False, f"seed {int(first.seed)}"
    labels = [rename_heads(str(edge), names) for edge in chosen]
    weights = ratio.mean("seed").sel(edge=labels).assign_coords(edge=[str(edge) for edge in chosen])
    if weights.isnull().all():
        return None
    weights.attrs["unit"] = "necessity"
    included, isolated = weights.notnull(), "grey"
    if any(edge.writer.kind in OF_DICTIONARY for edge in chosen):
        sizes = abs(weights).fillna(0)
        included = (sizes > 0) & (sizes >= np.sort(sizes)[-MOST_DRAWN:][0])
        isolated, words = "left out", f"{words}, the {MOST_DRAWN} largest"
    return words, circuit_figure(chosen, weights, included, names=names, numbered=not several, isolated=isolated)


def _roles_by_head(heads: xr.DataArray) -> dict[str, str] | None:
    """Heads to roles, those of a layer numbered in the order of roles; none where seeds have them in other layers."""
    layers = [[name.partition("H")[0] for name in of_seed] for of_seed in heads.transpose("seed", "role").values]
    if any(of_seed != layers[0] for of_seed in layers):
        return None
    roles = [str(role) for role in heads.role.values]
    return {
        f"{layer}H{layers[0][:i].count(layer)}": role
        for i, (layer, role) in enumerate(zip(layers[0], roles, strict=True))
    }


def _line(label: str, curve: Curve, weight: float, scale: float) -> go.Scatter:
    share = weight / scale
    width = 1 + 4 * abs(share)
    (colour,) = sample_colorscale(NEGATIVE if share < 0 else POSITIVE, [abs(share)])
    return go.Scatter(
        x=curve[:, 0].round(4),
        y=curve[:, 1].round(4),
        mode="lines+markers",
        line={"width": width, "color": colour},
        marker={
            "symbol": "arrow",
            "angleref": "previous",
            "size": [0] * (len(curve) - 1) + [7 + 1.5 * width],
            "color": [weight] * len(curve),
            "coloraxis": "coloraxis",
            "opacity": 1,
            "line": {"width": 0},
        },
        name=label,
        showlegend=False,
        hovertemplate=f"{label}: {weight:+z.3f}<extra></extra>",
    )


def _draw_parts(
    figure: go.Figure,
    edges: Sequence[Edge],
    drawn: Mapping[Edge, float],
    boxes: Mapping[Node, Box],
    titles: Mapping[Node, str],
) -> None:
    used = {part for edge in drawn for part in (edge.writer, edge.reader)}
    lettered = {edge.reader for edge in edges if edge.through} & set(boxes)
    for part, box in boxes.items():
        figure.add_shape(
            type="rect",
            x0=box.x - box.half_width,
            x1=box.x + box.half_width,
            y0=box.y - HALF_HEIGHT,
            y1=box.y + HALF_HEIGHT,
            line={"color": SOFT if part in used else FAINT, "width": 1},
            fillcolor=WASH if is_bar(part) else "#fff",
            layer="below",
        )
    figure.add_scatter(
        x=[box.x for box in boxes.values()],
        y=[box.y + (0.06 if part in lettered else 0) for part, box in boxes.items()],
        text=[titles[part] for part in boxes],
        mode="text",
        textfont={"color": [INK if part in used else FAINT for part in boxes], "size": 12},
        hoverinfo="skip",
        showlegend=False,
    )
    letters = [(box, part, through) for part, box in boxes.items() if part in lettered for through in "qkv"]
    figure.add_scatter(
        x=[box.x + PORTS[through] for box, _, through in letters],
        y=[box.y - HALF_HEIGHT + 0.07 for box, _, _ in letters],
        text=[through for _, _, through in letters],
        mode="text",
        textfont={"color": [SOFT if part in used else FAINT for _, part, _ in letters], "size": 10},
        hoverinfo="skip",
        showlegend=False,
    )


def _title(part: Node, names: Mapping[str, str], numbered: bool) -> str:
    name = "logits" if part == LOGITS else part_name(part)
    if isinstance(part, Site) and part.kind in OF_DICTIONARY:  # many stand side by side
        return f'<span style="font-size:10px">{name.removeprefix(f"L{part.layer}").strip()}</span>'
    lines = textwrap.wrap(names.get(name, ""), 12)
    if lines and not numbered:
        return "<br>".join(f"<b>{line}</b>" for line in lines)
    return "<br>".join([f"<b>{name}</b>", *(f'<span style="font-size:10px">{line}</span>' for line in lines)])


def _lay_out(figure: go.Figure, boxes: Mapping[Node, Box], scale: float, signed: bool, named: bool) -> go.Figure:
    right = max((box.x + box.half_width for box in boxes.values()), default=0.5)
    top = max((box.y for box in boxes.values()), default=0)
    figure.update_layout(**LAYOUT, height=round(ROW_HEIGHT[named] * (top + 0.7)) + 75, hovermode="closest")
    figure.update_layout(margin={"l": 5, "r": 5, "t": 5, "b": 70})
    figure.update_xaxes(visible=False, fixedrange=True, range=[-0.7, right + 0.7 - HALF_WIDTH])
    figure.update_yaxes(visible=False, fixedrange=True, range=[-0.35, top + 0.35])
    colours = [*reversed(NEGATIVE), *POSITIVE] if signed else list(POSITIVE)
    places = [0, 0.5, 0.5, 1] if signed else [0, 1]
    return figure.update_coloraxes(
        cmin=-scale if signed else 0,
        cmax=scale,
        colorscale=[list(pair) for pair in zip(places, colours, strict=True)],
        colorbar={"orientation": "h", "thickness": 10, "len": 0.6, "y": 0, "yanchor": "top"},
        colorbar_title={"side": "top", "font": {"size": 13}},
    )


def _values_by_edge(edges: Sequence[Edge], values: xr.DataArray | None, name: str) -> xr.DataArray:
    """Values in the order of the edges, found by their labels where there are any."""
    labels = [str(edge) for edge in edges]
    if not edges or len(set(labels)) < len(labels):
        raise InputError(f"edges must name at least one, each once; got {len(labels)}")
    if values is None:
        return xr.DataArray(np.ones(len(labels), dtype=bool), dims="edge", coords={"edge": labels})
    if "edge" not in values.dims or set(values.dims) - {"edge", "seed"}:
        raise InputError(
            f"{name} must be over edge, and perhaps seed; got {values.dims}; choose among the others with sel"
        )
    known = values.indexes["edge"].tolist() if "edge" in values.coords else labels
    missing = [label for label in labels if label not in known]
    if missing or values.sizes["edge"] != len(known):
        lacking = missing[0] if missing else f"labels: it has {values.sizes['edge']} values for {len(labels)} edges"
        raise InputError(f"{name} must have a value for each edge, by its label or in order; it lacks {lacking}")
    return values.assign_coords(edge=known).sel(edge=labels)
