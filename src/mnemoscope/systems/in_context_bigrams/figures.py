"""Figures of the birth of an induction head, from results over seeds and steps.

Lines over training steps, mean over seeds and range: losses, accuracy and memories by configuration.

Memories and attention at single checkpoints: recall, the scores behind it, patterns on a sequence, and settings.
"""

import math
import textwrap
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.colors import hex_to_rgb
from plotly.subplots import make_subplots

from mnemoscope.report import LAYOUT, PALETTE
from mnemoscope.systems.in_context_bigrams.analyses.heads import BOTH, OUTPUT, TRIGGER

INK, SOFT = "#1d2433", "#8791a3"
MEMORY_COLOURS = {
    "recall_copied_token": PALETTE[0],
    "recall_remapped_copy": PALETTE[1],
    "recall_previous_token_early": PALETTE[2],
    "recall_previous_token": "#8fbfa3",
}
MEMORY_NAMES = {
    "recall_copied_token": "W<sub>O</sub><sup>2</sup> copied token",
    "recall_remapped_copy": "W<sub>K</sub><sup>2</sup> remapped copy",
    "recall_previous_token_early": "W<sub>K</sub><sup>1</sup> previous token, first quarter",
    "recall_previous_token": "W<sub>K</sub><sup>1</sup> previous token, all",
}
"""Names of measures in the figures; matrices as in the paper, which counts layers from 1."""


def band(
    figure: go.Figure,
    values: xr.DataArray,
    name: str,
    colour: str,
    *,
    row: int = 1,
    column: int = 1,
    dash: str = "solid",
    legend: bool = True,
) -> None:
    """Add the mean over seeds to a panel as a line in #rrggbb, and their range as a band; values: (seed, step)."""
    steps, mean = values.step.values, values.mean("seed").values
    if values.sizes["seed"] > 1:
        outline = [*values.max("seed").values, *values.min("seed").values[::-1]]
        red, green, blue = hex_to_rgb(colour)
        filled = go.Scatter(
            x=[*steps, *steps[::-1]],
            y=outline,
            mode="lines",
            fill="toself",
            fillcolor=f"rgba({red},{green},{blue},0.15)",
            line={"width": 0},
            hoverinfo="skip",
            legendgroup=name,
            showlegend=False,
        )
        figure.add_trace(filled, row, column)
    line = go.Scatter(
        x=steps,
        y=mean,
        mode="lines",
        line={"color": colour, "width": 2, "dash": dash},
        name=name,
        legendgroup=name,
        showlegend=legend,
        hovertemplate=f"{name}: %{{y:.3f}} at step %{{x}}<extra></extra>",
    )
    figure.add_trace(line, row, column)


LOSSES = {"loss_in_context": ("in-context", PALETTE[0]), "loss_global": ("global bigrams", PALETTE[1])}
OUTPUTS = {"uniform": PALETTE[0], "bigram": PALETTE[1]}


def losses(trajectories: Mapping[str, xr.Dataset]) -> go.Figure:
    """Loss over (seed, step) where the context gives outputs, and where only global bigrams help, by setting."""
    figure = make_subplots(1, len(trajectories), subplot_titles=list(trajectories), shared_yaxes=True)
    for column, found in enumerate(trajectories.values(), 1):
        for measure, (name, colour) in LOSSES.items():
            band(figure, found[measure], name, colour, column=column, legend=column == 1)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title="loss (nats)", row=1, col=1)
    figure.update_xaxes(title="training step")
    return figure.update_layout(**LAYOUT, height=380)


def outputs(trajectories: Mapping[str, xr.Dataset]) -> go.Figure:
    """Accuracy on either distribution of outputs, and two memories, over (seed, step), by that of training."""
    titles = ("in-context accuracy", "W<sub>O</sub><sup>2</sup>: recall", "W<sub>F</sub>: KL from the bigrams (nats)")
    figure = make_subplots(1, 3, subplot_titles=titles, horizontal_spacing=0.07)
    for trained, found in trajectories.items():
        colour = OUTPUTS[trained]
        for tested in OUTPUTS:
            name = f"trained on {trained}, tested on {tested}"
            dash = "solid" if tested == trained else "dash"
            band(figure, found[f"accuracy_in_context_{tested}_outputs"], name, colour, dash=dash)
        for column, measure in ((2, "recall_copied_token"), (3, "feed_forward_kl")):
            band(figure, found[measure], f"trained on {trained}", colour, column=column, legend=False)
    for column in (1, 2):
        figure.update_yaxes(range=[-0.03, 1.05], row=1, col=column)
    figure.update_yaxes(rangemode="tozero", row=1, col=3)
    figure.update_xaxes(title="training step")
    return figure.update_layout(**LAYOUT, height=380)


def schedules(trajectories: Mapping[str, xr.Dataset], *, freed: Mapping[str, int] | None = None) -> go.Figure:
    """One panel per schedule: the mean over seeds, and their range, of measures over (seed, step).

    A dotted line marks the step in `freed`, by title, from which everything is learned.
    """
    figure = make_subplots(1, len(trajectories), subplot_titles=list(trajectories), shared_yaxes=True)
    for column, (title, found) in enumerate(trajectories.items(), 1):
        for name, colour in MEMORY_COLOURS.items():
            dash = "dot" if name == "recall_previous_token" else "solid"
            band(figure, found[name], MEMORY_NAMES[name], colour, column=column, dash=dash, legend=column == 1)
        accuracy = found["accuracy_in_context"]
        band(figure, accuracy, "in-context accuracy", INK, column=column, dash="dash", legend=column == 1)
        if freed is not None and title in freed:
            _mark_release(figure, freed[title], column)
    figure.update_yaxes(range=[-0.03, 1.05])
    figure.update_yaxes(title="share", row=1, col=1)
    figure.update_xaxes(title="training step")
    return figure.update_layout(**LAYOUT, height=420)


def _mark_release(figure: go.Figure, step: int, column: int) -> None:
    """A line where what was frozen becomes free."""
    note = {"annotation_text": " all free", "annotation_position": "bottom right", "annotation_font_size": 11}
    line = {"dash": "dot", "color": "#5b6577", "width": 1.5}
    figure.add_vline(x=step, line=line, **{"row": 1, "col": column}, **note)


BARS = {
    "previous token, early": ("W<sub>K</sub><sup>1</sup><br>previous token,<br>first quarter", "previous_token_early"),
    "previous token": ("W<sub>K</sub><sup>1</sup><br>previous token,<br>all positions", "previous_token"),
    "remapped copy": ("W<sub>K</sub><sup>2</sup><br>remapped copy", "remapped_copy"),
    "copied token": ("W<sub>O</sub><sup>2</sup><br>copied token", "copied_token"),
}
PANELS = {
    "previous_token": ("W<sub>K</sub><sup>1</sup>: previous token", "key position", "query position"),
    "remapped_copy": ("W<sub>K</sub><sup>2</sup>: remapped copy", "key: copy of token", "query: token"),
    "copied_token": ("W<sub>O</sub><sup>2</sup>: copied token", "logit of token", "attended token"),
}
_COLUMN = 15
"""Letters of a line above a column."""
LIMIT = 4
"""Standard deviations at which the colours end."""


def memory_bars(memories: xr.Dataset) -> go.Figure:
    """Recall of every memory, from `induction_memories` along `seed`: bars show means, dots seeds, lines chance."""
    figure = go.Figure()
    shown = [name for name in BARS if name in memories.memory.values]
    for place, name in enumerate(shown):
        at = memories.sel(memory=name)
        values, chance = at.recall.values, float(at.chance.mean())
        colour = MEMORY_COLOURS[f"recall_{BARS[name][1]}"]
        figure.add_bar(x=[place], y=[values.mean()], width=0.62, marker_color=colour, opacity=0.55, hoverinfo="skip")
        spread = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
        figure.add_scatter(
            x=place + spread,
            y=values,
            mode="markers",
            marker={"color": colour, "size": 6, "line": {"color": "white", "width": 0.8}},
            text=[f"seed {int(seed)}: {value:z.3f}" for seed, value in zip(at.seed.values, values, strict=True)],
            hovertemplate="%{text}<extra></extra>",
        )
        line = {"color": INK, "width": 1.5, "dash": "dot"}
        figure.add_shape(type="line", x0=place - 0.31, x1=place + 0.31, y0=chance, y1=chance, line=line)
    figure.update_xaxes(tickvals=list(range(len(shown))), ticktext=[BARS[name][0] for name in shown], showgrid=False)
    figure.update_yaxes(title="recall R", range=[-0.02, 1.05])
    figure.update_layout(showlegend=False, height=360)
    return figure.update_layout({**LAYOUT, "margin": {"l": 60, "r": 20, "t": 20, "b": 80}})


def memory_heatmaps(maps: xr.Dataset, *, n_pos: int | None = None) -> go.Figure:
    """Scores of every memory of one model at the first `n_pos` positions; a stored memory has a dark diagonal.

    Tokens have the names in the coordinate `symbol` of the maps, if it is there, else numbers.
    """
    symbols = maps.symbol.values.tolist() if "symbol" in maps.coords else None
    figure = make_subplots(1, 3, subplot_titles=[title for title, _, _ in PANELS.values()], horizontal_spacing=0.13)
    for column, (name, (_, x, y)) in enumerate(PANELS.items(), 1):
        values = maps[name]
        if name == "previous_token" and n_pos is not None:
            values = values.isel(query=slice(n_pos - 1), key=slice(n_pos - 1))
        rows, columns = values.dims
        heat = go.Heatmap(
            z=values.values,
            x=_axis_names(values, columns, symbols),
            y=_axis_names(values, rows, symbols),
            coloraxis="coloraxis",
            hovertemplate=f"{y} %{{y}}, {x} %{{x}}: %{{z:.1f}}<extra></extra>",
        )
        figure.add_trace(heat, 1, column)
        figure.update_xaxes(title=x, type="category", nticks=8, row=1, col=column)
        title = {"text": y, "standoff": 4}
        figure.update_yaxes(title=title, type="category", nticks=8, autorange="reversed", row=1, col=column)
    figure.update_layout({**LAYOUT, "margin": {"l": 60, "r": 20, "t": 40, "b": 60}}, height=380)
    bar = {"thickness": 12, "title": {"text": "standard<br>deviations", "font": {"size": 11}}}
    return figure.update_coloraxes(cmin=-LIMIT, cmax=LIMIT, colorscale="RdBu", reversescale=True, colorbar=bar)


def _axis_names(values: xr.DataArray, axis: Hashable, symbols: Sequence[str] | None) -> list[str]:
    """The labels of an axis: positions by number, tokens by their names where these are known."""
    labels = values[axis].values.tolist()
    if symbols is None or axis in ("query", "key"):
        return [str(label) for label in labels]
    return [str(symbols[label]) for label in labels]


MARKS = {TRIGGER: "▸{}", OUTPUT: "{}◂", BOTH: "▸{}◂"}
COLOURS = {TRIGGER: "#b45309", OUTPUT: PALETTE[0], BOTH: PALETTE[3]}


def mark_triggers(example: xr.Dataset) -> xr.Dataset:
    """One sequence of `marked_patterns` for an interactive view, its tokens marked: ▸ a trigger, ◂ the next token."""
    pairs = zip(example.token.values.tolist(), example.role.values.tolist(), strict=True)
    return example.assign(token=("key", [MARKS.get(role, "{}").format(token) for token, role in pairs]))


def before_and_after(examples: Mapping[str, xr.Dataset], *, n_pos: int = 32, head: int = 0) -> go.Figure:
    """One head of every layer as heat maps, one row per checkpoint; triggers and outputs are coloured.

    Examples are one and the same sequence of `marked_patterns`, by title of a checkpoint (such as `step 0`).
    """
    first = next(iter(examples.values()))
    layers = first.layer.size
    titles = [f"layer {layer + 1}, {name}" for name in examples for layer in first.layer.values]
    figure = make_subplots(
        len(examples), layers, subplot_titles=titles, horizontal_spacing=0.1, vertical_spacing=0.16 / len(examples)
    )
    names = _token_labels(first.isel(key=slice(n_pos)))
    ticks = {"tickvals": list(range(len(names))), "ticktext": names, "tickfont": {"size": 11}, "showgrid": False}
    for row, example in enumerate(examples.values(), 1):
        for column in range(1, layers + 1):
            pattern = example.pattern.isel(layer=column - 1, head=head, query=slice(n_pos), key=slice(n_pos))
            heat = go.Heatmap(
                z=pattern.transpose("query", "key").values,
                coloraxis="coloraxis",
                hovertemplate="from position %{y} to %{x}: %{z:.3f}<extra></extra>",
            )
            figure.add_trace(heat, row, column)
    figure.update_xaxes(**ticks, tickangle=0)
    figure.update_yaxes(**ticks, autorange="reversed")
    figure.update_layout({**LAYOUT, "margin": {"l": 40, "r": 20, "t": 40, "b": 30}}, height=60 + 430 * len(examples))
    return figure.update_coloraxes(cmin=0, cmax=1, colorscale="Blues", colorbar={"thickness": 12})


def _token_labels(example: xr.Dataset) -> list[str]:
    """Tokens as HTML, coloured by what they are."""
    names = []
    for token, role in zip(example.token.values.tolist(), example.role.values.tolist(), strict=True):
        name = str(token).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        names.append(f'<b style="color:{COLOURS[role]}">{name}</b>' if role in COLOURS else name)
    return names


MEASURES = {**MEMORY_NAMES, "accuracy_in_context": "in-context accuracy"}


def settings(trajectories: Mapping[str, xr.Dataset]) -> go.Figure:
    """One row per setting, one column per measure over (seed, step): mean and range over seeds at the last step."""
    last = [found.isel(step=-1) for found in trajectories.values()]
    values = np.array([[float(found[name].mean("seed")) for name in MEASURES] for found in last])
    text = [[_format_cell(found[name]) for name in MEASURES] for found in last]
    heat = go.Heatmap(
        z=values,
        x=[_break_name(name) for name in MEASURES.values()],
        y=list(trajectories),
        text=text,
        texttemplate="%{text}",
        zmin=0,
        zmax=1,
        colorscale="Blues",
        xgap=2,
        ygap=2,
        showscale=False,
        hovertemplate="%{y}, %{x}: %{z:.3f}<extra></extra>",
    )
    figure = go.Figure(heat).update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(side="top", showgrid=False, tickangle=0, tickfont_size=11)
    margin = {"l": 20, "r": 20, "t": 70, "b": 20}
    return figure.update_layout({**LAYOUT, "margin": margin}, height=100 + 52 * len(trajectories))


def _break_name(name: str) -> str:
    """The matrix, and below it lines that fit a column of a narrow page."""
    matrix, _, rest = name.partition(" ")
    return "<br>".join([matrix, *textwrap.wrap(rest, _COLUMN)])


def _format_cell(values: xr.DataArray) -> str:
    """Mean, and range where there are several seeds; nothing where it is not defined."""
    low, mean, high = (float(value) for value in (values.min(), values.mean(), values.max()))
    if math.isnan(mean):
        return ""
    return f"{mean:z.2f}" + (f"<br><sub>{low:z.2f} – {high:z.2f}</sub>" if values.sizes["seed"] > 1 else "")
