"""A circuit of edges between the parts of a model, as a picture."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.colors import sample_colorscale

from mnemoscope.analyses.roles import HEAD, rename_heads
from mnemoscope.core.edge import LOGITS, Edge, part_name
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.report.edge_routes import HALF_HEIGHT, HALF_WIDTH, PORTS, Box, Curve, Node, is_bar, places, routes
from mnemoscope.report.figures import LAYOUT

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
    weights, included = (_along(edges, v, name) for name, v in (("weights", weights), ("included", included)))
    if weights.dims != ("edge",) or included.dims != ("edge",):
        raise InputError(
            f"weights and included must be over edge alone; got {weights.dims}; choose one seed, or a mean"
        )
    drawn = {edge: float(w) for edge, w, chosen in zip(edges, weights, included, strict=True) if chosen}
    if not np.isfinite(list(drawn.values())).all():
        raise InputError("the weight of an edge in the circuit must be a number; leave the edge out with included=")
    boxes = places(edges if isolated == "grey" else list(drawn))
    scale = max((abs(w) for w in drawn.values()), default=0.0) or 1.0
    signed = min(drawn.values(), default=0.0) < 0
    curves = dict(zip(drawn, routes(list(drawn), boxes), strict=True))
    smallest_first = sorted(drawn, key=lambda edge: abs(drawn[edge]))
    unnumbered = {} if numbered else names or {}
    labels = {edge: HEAD.sub(lambda head: unnumbered.get(head[0], head[0]), str(edge)) for edge in drawn}
    figure = go.Figure([_line(labels[edge], curves[edge], drawn[edge], scale) for edge in smallest_first])
    _draw_parts(figure, edges, drawn, boxes, {part: _title(part, names or {}, numbered) for part in boxes})
    return _laid_out(figure, boxes, scale, signed, bool(names)).update_coloraxes(
        colorbar_title_text=str(weights.attrs.get("unit", "weight"))
    )


def role_circuit(chosen: Sequence[Edge], ratio: xr.DataArray, component: xr.DataArray) -> tuple[str, go.Figure] | None:
    """The circuit over seeds, and in words over which; none where every weight is missing.

    A mean over seeds is drawn where heads of one role lie in one layer in all of them; otherwise the first seed.
    `chosen` holds the model's edges by head number, `ratio` is by role; `component` over (seed, role) translates.
    """
    heads = component.sel(role=[HEAD.fullmatch(name) is not None for name in component.isel(seed=0).values])
    names, several = _same_places(heads), ratio.sizes["seed"] > 1
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
    return words, circuit_figure(chosen, weights, weights.notnull(), names=names, numbered=not several)


def _same_places(heads: xr.DataArray) -> dict[str, str] | None:
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
    lines = textwrap.wrap(names.get(name, ""), 12)
    if lines and not numbered:
        return "<br>".join(f"<b>{line}</b>" for line in lines)
    return "<br>".join([f"<b>{name}</b>", *(f'<span style="font-size:10px">{line}</span>' for line in lines)])


def _laid_out(figure: go.Figure, boxes: Mapping[Node, Box], scale: float, signed: bool, named: bool) -> go.Figure:
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


def _along(edges: Sequence[Edge], values: xr.DataArray | None, name: str) -> xr.DataArray:
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
