"""Neurons as key/value memories: rows of text and figures."""

import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.viz.figures import LAYOUT, colours_of, heatmaps
from mnemoscope.viz.tables import spread


def role_header(roles: xr.Dataset) -> list[str]:
    """Column names of `role_rows`."""
    return ["role", "neurons", "seeds", *(f"{skill} without" for skill in roles.skill.values)]


def role_rows(roles: xr.Dataset) -> list[list[str]]:
    """How many neurons have each role, in how many seeds some do, and accuracy without them."""
    rows = []
    for role in roles.role.values:
        at = roles.sel(role=role)
        if int(at["size"].sum()):
            skills = [spread(at.accuracy.sel(skill=skill), ".2f") for skill in roles.skill.values]
            rows.append([str(role), spread(at["size"], ".1f"), str(int((at["size"] > 0).sum())), *skills])
    return rows


def share_header(shares: xr.Dataset) -> list[str]:
    """Column names of `share_rows`."""
    return ["k", *(f"{skill}, {name}" for skill in shares.skill.values for name in ("top k", "random k"))]


def share_rows(shares: xr.Dataset) -> list[list[str]]:
    """The fraction of each skill that the top k neurons carry, beside that of random ones; accuracy."""
    at = shares.sel(part="kept", metric="accuracy")
    return [
        [
            str(int(k)),
            *(
                spread(values.sel(k=k, skill=skill), ".2f")
                for skill in shares.skill.values
                for values in (at.fraction, at.random_fraction.mean("draw"))
            ),
        ]
        for k in shares.k.values
    ]


NEURON_HEADER = ("neuron", "role", "explained", "serves", "promotes", "fires for", "p(active)")


def neuron_rows(neurons: xr.Dataset, selectivity: xr.Dataset, agreement: xr.Dataset, *, top: int) -> list[list[str]]:
    """The neurons of one run that cost most log-probability of any skill, most needed first.

    Args:
        neurons: Of one seed, like the others.
        selectivity: How often each is active.
        agreement: Mean activation by target.
        top: How many.
    """
    cost = (neurons.clean_log_prob - neurons.log_prob).max("skill")
    return [_neuron_row(neurons, selectivity, agreement, int(i)) for i in cost.values.argsort()[::-1][:top]]


def _neuron_row(neurons: xr.Dataset, selectivity: xr.Dataset, agreement: xr.Dataset, i: int) -> list[str]:
    at = neurons.isel(neuron=i)
    signs = {1: "+", -1: "-"}
    serves = [
        signs[int(sign)] + str(skill) for skill, sign in zip(at.skill.values, at.serves.values, strict=True) if sign
    ]
    fires = agreement.activation.isel(neuron=i)
    return [
        str(int(at.neuron)),
        str(at.role.values),
        "–" if str(at.latent.values) == "" else f"{float(at.explains):.2f} of {at.latent.values}",
        ", ".join(word for word in serves if word[0] in "+-") or "–",
        str(int(at.promoted.isel(rank=0))),
        str(int(fires.token[int(fires.values.argmax())])) if float(fires.max()) > 0 else "–",
        f"{float(selectivity.active.isel(neuron=i)):.2f}",
    ]


def share_figure(shares: xr.Dataset) -> go.Figure:
    """The fraction of each skill against k: top neurons, one line per seed, and the mean of random ones dashed."""
    skills = [str(skill) for skill in shares.skill.values]
    figure = make_subplots(1, len(skills), subplot_titles=skills, shared_yaxes=True)
    at = shares.sel(part="kept", metric="accuracy")
    for column, (skill, colour) in enumerate(colours_of(skills).items(), 1):
        style = {"color": colour, "width": 1.3}
        for i in range(shares.sizes["seed"]):
            lines = (
                ("top k", at.fraction, style),
                ("random k", at.random_fraction.mean("draw"), {**style, "dash": "dot", "color": "#8a93a3"}),
            )
            for name, values, line in lines:
                figure.add_trace(
                    go.Scatter(
                        x=[str(k) for k in shares.k.values],
                        y=values.isel(seed=i).sel(skill=skill).values,
                        name=name,
                        line=line,
                        opacity=0.8,
                        legendgroup=name,
                        showlegend=i == 0 and column == 1,
                    ),
                    1,
                    column,
                )
    figure.update_xaxes(title="k, neurons kept", type="category")
    figure.update_yaxes(title="fraction of the skill", row=1, col=1)
    return figure.update_layout(**LAYOUT, height=360)


def key_figure(neurons: xr.Dataset, *, top: int) -> go.Figure:
    """Keys and values of the most needed neurons of one run, each part a panel: what they read, what they write."""
    cost = (neurons.clean_log_prob - neurons.log_prob).max("skill")
    chosen = neurons.isel(neuron=cost.values.argsort()[::-1][:top])
    panels = {"key: token": chosen.key_token, "key: position": chosen.key_pos}
    for head in chosen["head"].values.tolist():
        panels[f"key: tokens read through H{head}"] = chosen.key_head_token.sel(head=head, drop=True)
        panels[f"key: positions read through H{head}"] = chosen.key_head_pos.sel(head=head, drop=True)
    panels["value: token"] = chosen.value
    return heatmaps(panels)
