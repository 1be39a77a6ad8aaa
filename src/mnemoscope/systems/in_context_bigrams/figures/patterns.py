"""Attention patterns on one sequence, triggers and outputs marked, before and after training."""

from collections.abc import Mapping

import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.systems.in_context_bigrams.analyses.example import BOTH, OUTPUT, TRIGGER
from mnemoscope.viz import LAYOUT

MARKS = {TRIGGER: "▸{}", OUTPUT: "{}◂", BOTH: "▸{}◂"}
COLOURS = {TRIGGER: "#c8501e", OUTPUT: "#1f5fbf", BOTH: "#8a4fbf"}


def marked(example: xr.Dataset) -> xr.Dataset:
    """The same sequence with marks on its tokens, for an interactive view: ▸ a trigger, ◂ the token after one.

    Args:
        example: One sequence of `marked_patterns`.
    """
    pairs = zip(example.token.values.tolist(), example.role.values.tolist(), strict=True)
    return example.assign(token=("key", [MARKS.get(role, "{}").format(token) for token, role in pairs]))


def before_and_after(examples: Mapping[str, xr.Dataset], *, n_pos: int = 32, head: int = 0) -> go.Figure:
    """One head of every layer as heat maps, a row a checkpoint; triggers and outputs are coloured.

    Args:
        examples: Title of a checkpoint (such as `step 0`) to one and the same sequence of `marked_patterns`.
        n_pos: How many tokens, from the first.
        head: Which head of a layer.
    """
    first = next(iter(examples.values()))
    layers = first.layer.size
    titles = [f"layer {layer + 1}, {name}" for name in examples for layer in range(layers)]
    figure = make_subplots(
        len(examples), layers, subplot_titles=titles, horizontal_spacing=0.1, vertical_spacing=0.16 / len(examples)
    )
    names = _labels(first.isel(key=slice(n_pos)))
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


def _labels(example: xr.Dataset) -> list[str]:
    """Tokens as HTML, coloured by what they are."""
    names = []
    for token, role in zip(example.token.values.tolist(), example.role.values.tolist(), strict=True):
        name = str(token).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        names.append(f'<b style="color:{COLOURS[role]}">{name}</b>' if role in COLOURS else name)
    return names
