"""Neurons as key/value memories: tables and figures."""

from itertools import product

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from jaxtyping import Int
from plotly.subplots import make_subplots

from mnemoscope.viz.figures import LAYOUT, colours_of, heatmaps
from mnemoscope.viz.tables import Table, single, spread


def role_table(roles: xr.Dataset) -> Table:
    """The number of neurons with each role, the number of seeds in which some have it, and accuracy without them."""
    rows = []
    for role in roles.role.values:
        at = roles.sel(role=role)
        if int(at["size"].sum()):
            skills = [spread(at.accuracy.sel(skill=skill), ".2f") for skill in roles.skill.values]
            rows.append([str(role), spread(at["size"], ".1f"), str(int((at["size"] > 0).sum())), *skills])
    header = ["role", "neurons", "seeds", *(f"{skill} without" for skill in roles.skill.values)]
    return Table(name="by-role", title="neurons by role, and accuracy without them", header=header, rows=rows)


def share_table(shares: xr.Dataset) -> Table:
    """The fraction of each skill that the top k neurons carry, beside that of random ones; accuracy."""
    at = shares.sel(part="kept", metric="accuracy")
    columns = {
        f"{skill}, {name}": values.sel(skill=skill)
        for skill in shares.skill.values
        for name, values in (("top k", at.fraction), ("random k", at.random_fraction.mean("draw")))
    }
    rows = [[str(int(k)), *(spread(values.sel(k=k), ".2f") for values in columns.values())] for k in shares.k.values]
    title = "fraction of each skill (accuracy) with k neurons kept"
    return Table(name="top-k", title=title, header=["k", *columns], rows=rows)


def neuron_table(neurons: xr.Dataset, selectivity: xr.Dataset, agreement: xr.Dataset, *, top: int) -> Table:
    """The neurons of one run that cost most log-probability of any skill, most needed first.

    `selectivity` is how often each neuron is active, `agreement` its mean activation by target.
    """
    rows = []
    for i in _most_needed(neurons, top):
        at, fires = neurons.isel(neuron=i), agreement.activation.isel(neuron=i)
        signs = zip(at.skill.values, at.serves.values, strict=True)
        row = [
            str(int(at.neuron)),
            str(at.role.values),
            "–" if str(at.latent.values) == "" else f"{float(at.explains):.2f} of {at.latent.values}",
            ", ".join(f"{'+' if sign > 0 else '-'}{skill}" for skill, sign in signs if sign) or "–",
            str(int(at.promoted.isel(rank=0))),
            str(int(fires.token[int(fires.values.argmax())])) if float(fires.max()) > 0 else "–",
            single(float(selectivity.active.isel(neuron=i)), ".2f"),
        ]
        rows.append(row)
    title = f"the most needed neurons of seed {int(neurons.seed)}"
    header = ("neuron", "role", "explained", "serves", "promotes", "fires for", "p(active)")
    return Table(name="most-needed", title=title, header=header, rows=rows, n_text=4)


def _most_needed(neurons: xr.Dataset, top: int) -> Int[np.ndarray, " rank"]:
    """The neurons whose removal costs most log-probability of any skill."""
    cost = (neurons.clean_log_prob - neurons.log_prob).max("skill")
    return cost.values.argsort()[::-1][:top]


def share_figure(shares: xr.Dataset) -> go.Figure:
    """The fraction of each skill against k: top neurons, one line per seed, and the mean of random ones dashed."""
    skills = [str(skill) for skill in shares.skill.values]
    figure = make_subplots(1, len(skills), subplot_titles=skills, shared_yaxes=True)
    at = shares.sel(part="kept", metric="accuracy")
    for column, (skill, colour) in enumerate(colours_of(skills).items(), 1):
        lines = (
            ("top k", at.fraction, {"color": colour, "width": 1.3}),
            ("random k", at.random_fraction.mean("draw"), {"color": "#8a93a3", "width": 1.3, "dash": "dot"}),
        )
        for i, (name, values, line) in product(range(shares.sizes["seed"]), lines):
            style = {"name": name, "legendgroup": name, "showlegend": i == 0 and column == 1, "line": line}
            y = values.isel(seed=i).sel(skill=skill).values
            figure.add_trace(go.Scatter(x=[str(k) for k in shares.k.values], y=y, opacity=0.8, **style), 1, column)
    figure.update_xaxes(title="k, neurons kept", type="category")
    figure.update_yaxes(title="fraction of the skill", row=1, col=1)
    return figure.update_layout(**LAYOUT, height=360)


def key_figure(neurons: xr.Dataset, *, top: int) -> go.Figure:
    """Keys and values of the most needed neurons of one run, each part a panel: what they read, what they write."""
    chosen = neurons.isel(neuron=_most_needed(neurons, top))
    panels = {"key: token": chosen.key_token, "key: position": chosen.key_pos}
    for head in chosen["head"].values.tolist():
        panels[f"key: tokens read through H{head}"] = chosen.key_head_token.sel(head=head, drop=True)
        panels[f"key: positions read through H{head}"] = chosen.key_head_pos.sel(head=head, drop=True)
    panels["value: token"] = chosen.value
    return heatmaps(panels)
