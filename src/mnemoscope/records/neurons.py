"""MLP neurons of one layer as key/value memories (`analyses.neurons`): what they read, write, and are needed for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import mnemoscope as ms
from mnemoscope.core.errors import in_range
from mnemoscope.records.record import MeasuredRuns, Options, draw_sequences, register_module, xr


@dataclass(frozen=True, kw_only=True)
class Neurons(Options):
    """MLP neurons as key/value memories: what they read, what they write, what they are needed for."""

    layer: int = 0
    """Whose neurons."""
    units: Literal["neurons", "features"] = "neurons"
    """Neurons, or the features of the layer's dictionary in their place (with `--dictionary FILE`)."""
    top: int = 10
    """Neurons of the first run that are listed, the most needed first."""
    sampled: bool = False
    """Read selectivity from samples; without it from every sequence, which tasks may refuse."""
    n: int = 2048
    """Sequences of each subgroup; one half ranks the neurons, the other is measured."""


LIMITS = (
    "A neuron is named after the simplest latent that its being active or not says most about, over the whole input "
    "space; that is descriptive, and untrained neurons get such names too. What removing neurons costs is causal, "
    "given the rest of the model as it is: neurons that can stand in for each other look unneeded one at a time.",
    "The top k neurons are ranked by what removing one costs, on one half of the prompts, and kept, all others at "
    "their mean, on the other half. A dash: the layer carries too little of the skill for a fraction to mean anything.",
)


def check(options: Neurons) -> None:
    """Refuse a list without neurons."""
    in_range("--top", options.top, 1, float("inf"))


def measure(run: ms.Run, options: Neurons) -> dict[str, xr.Dataset]:
    """Read the neurons of one layer of one run."""
    task, seed, split = run.spec.task, run.spec.seed, options.split
    batch = draw_sequences(run, options, "prompts")
    reference = task.sample(options.n, split=split, generator=ms.generator(seed, "reference", split))
    inputs = batch if options.sampled else task.enumerate(split=split)
    model, skills = run.hooked(options.step), task.skills(batch)
    return ms.analyses.read_neurons(
        model,
        batch,
        skills=skills,
        reference=reference,
        inputs=inputs,
        layer=options.layer,
        units=options.units,
        seed=seed,
    )


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """Neurons by role, the skills that the top k carry, and the most needed neurons of the first seed."""
    first = {name: measured.results[name].isel(seed=0) for name in ("neurons", "selectivity", "agreement")}
    names, outputs = ("neurons", "selectivity", "agreement"), ms.report.output_symbols(measured.runs[0].spec.task)
    listed = neuron_table(*(first[name] for name in names), top=measured.options.top, outputs=outputs)
    return [role_table(measured.results["roles"]), share_table(measured.results["shares"]), listed]


def role_table(roles: xr.Dataset) -> ms.report.Table:
    """The number of neurons with each role, the number of seeds in which some have it, and accuracy without them."""
    rows = []
    for role in roles.role.values:
        at = roles.sel(role=role)
        if int(at["size"].sum()):
            skills = [ms.report.mean_with_range(at.accuracy.sel(skill=skill), ".2f") for skill in roles.skill.values]
            rows.append(
                [str(role), ms.report.mean_with_range(at["size"], ".1f"), str(int((at["size"] > 0).sum())), *skills]
            )
    header = ["role", "neurons", "seeds", *(f"{skill} without" for skill in roles.skill.values)]
    return ms.report.Table(name="by-role", title="neurons by role, and accuracy without them", header=header, rows=rows)


def share_table(shares: xr.Dataset) -> ms.report.Table:
    """The fraction of each skill that the top k neurons carry, beside that of random ones; accuracy."""
    at = shares.sel(part="kept", metric="accuracy")
    columns = {
        f"{skill}, {name}": values.sel(skill=skill)
        for skill in shares.skill.values
        for name, values in (("top k", at.fraction), ("random k", at.random_fraction.mean("draw")))
    }
    rows = [
        [str(int(k)), *(ms.report.mean_with_range(values.sel(k=k), ".2f") for values in columns.values())]
        for k in shares.k.values
    ]
    title = "fraction of each skill (accuracy) with k neurons kept"
    return ms.report.Table(name="top-k", title=title, header=["k", *columns], rows=rows)


def token_symbols(measured: MeasuredRuns) -> list[str]:
    """The names of all tokens of the task."""
    return ms.report.token_symbols(measured.runs[0].spec.task)


def neuron_table(
    neurons: xr.Dataset, selectivity: xr.Dataset, agreement: xr.Dataset, *, top: int, outputs: Sequence[str]
) -> ms.report.Table:
    """The most needed neurons of one run; `selectivity` is how often each is active, `agreement` its mean by target."""
    rows = []
    for i in _most_needed(neurons, top):
        at, fires = neurons.isel(neuron=i), agreement.activation.isel(neuron=i)
        signs = zip(at.skill.values, at.serves.values, strict=True)
        row = [
            str(int(at.neuron)),
            str(at.role.values),
            "–" if str(at.latent.values) == "" else f"{float(at.explains):.2f} of {at.latent.values}",
            ", ".join(f"{'+' if sign > 0 else '-'}{skill}" for skill, sign in signs if sign) or "–",
            outputs[int(at.promoted.isel(rank=0))],
            _name(fires[int(fires.values.argmax())], outputs) if float(fires.max()) > 0 else "–",
            ms.report.single_number(float(selectivity.active.isel(neuron=i)), ".2f"),
        ]
        rows.append(row)
    header = ("neuron", "role", "explained", "serves", "promotes", "fires for", "p(active)")
    return ms.report.Table(name="most-needed", title=_neuron_title(neurons), header=header, rows=rows, n_text=4)


def _name(at: xr.DataArray, outputs: Sequence[str]) -> str:
    """The name of the output that a value is of."""
    return str(at["class"].item()) if "class" in at.coords else outputs[int(at.token)]


def _neuron_title(neurons: xr.Dataset) -> str:
    return f"the most needed neurons of seed {int(neurons.seed)}"


def _most_needed(neurons: xr.Dataset, top: int) -> list[int]:
    """The neurons whose removal costs most log-probability of any skill."""
    cost = (neurons.clean_log_prob - neurons.log_prob).max("skill")
    return cost.values.argsort()[::-1][:top].tolist()


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """The share of each skill over the number of neurons kept, and what the most needed neurons read and write."""
    neurons = measured.results["neurons"].isel(seed=0)
    return [
        (
            "Fraction of each skill against the number of neurons kept; one line per seed.",
            share_figure(measured.results["shares"]),
        ),
        (
            f"What {_neuron_title(neurons)} read and write.",
            key_figure(neurons, top=measured.options.top, symbols=token_symbols(measured)),
        ),
    ]


def share_figure(shares: xr.Dataset) -> Any:
    """The fraction of each skill against k: top neurons, one line per seed, and the mean of random ones dashed."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    skills = [str(skill) for skill in shares.skill.values]
    figure = make_subplots(1, len(skills), subplot_titles=skills, shared_yaxes=True)
    at = shares.sel(part="kept", metric="accuracy")
    for column, (skill, colour) in enumerate(ms.report.assign_colours(skills).items(), 1):
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
    return figure.update_layout(**ms.report.LAYOUT, height=360)


def key_figure(neurons: xr.Dataset, *, top: int, symbols: Sequence[str]) -> Any:
    """Keys and values of the most needed neurons of one run, each part a panel: what they read, what they write."""
    from mnemoscope.report.figures import heatmaps

    chosen = neurons.isel(neuron=_most_needed(neurons, top))
    panels = {"key: token": chosen.key_token, "key: position": chosen.key_pos}
    for head in chosen["head"].values.tolist():
        panels[f"key: tokens read through H{head}"] = chosen.key_head_token.sel(head=head, drop=True)
        panels[f"key: positions read through H{head}"] = chosen.key_head_pos.sel(head=head, drop=True)
    panels[f"value: {chosen.value.dims[-1]}"] = chosen.value
    return heatmaps(panels, symbols=symbols)


def finding(measured: MeasuredRuns) -> str:
    """The number of neurons that keep nearly all that the layer adds to every skill."""
    from mnemoscope.report.findings import MOST

    shares = measured.results["shares"]
    kept = shares.fraction.sel(part="kept", metric="accuracy")
    found = []
    for skill in map(str, shares.skill.values):
        mean = kept.sel(skill=skill).mean("seed")
        enough = [int(k) for k, value in zip(mean.k.values, mean.values, strict=True) if value >= MOST]
        total = shares.sizes["rank"]
        found.append(f"{enough[0]} of {total} for {skill}" if enough else f"for {skill} this could not be measured")
    return f"Neurons that keep {MOST:g} of what their layer adds to the accuracy: {'; '.join(found)}."


register_module(__name__, Neurons, source="Geva et al. 2021 (feed-forward layers as key/value memories)")
