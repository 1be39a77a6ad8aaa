"""MLP neurons of one layer as key/value memories (`analyses.neurons`): what they read, write, and are needed for.

Features of the layer's dictionary take their place on demand, in the same tables, figures and sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
    """Neurons or features of the first run that are listed, the most needed first."""
    sampled: bool = False
    """Read selectivity from samples; without it from every sequence, which tasks may refuse."""
    n: int = 2048
    """Sequences of each subgroup; one half ranks neurons or features, the other is measured."""


N_LOGITS = 3
"""Logits that are named on each side."""
MAX_SHOWN = 40
"""Most tokens of a sequence in a table."""
LIMITS = (
    "A neuron or feature is named after the simplest latent that its being active or not says most about, over the "
    "whole input space; that is descriptive, and untrained ones get such names too. What switching some off costs is "
    "causal, given the rest of the model as it is: those that can stand in for each other look unneeded one at a time.",
    "The top k are ranked by what switching one off costs, on one half of the prompts, and kept, all others at their "
    "mean, on the other half. A dash: they carry too little of the skill for a fraction to mean anything.",
)
OF_FEATURES = (
    "Features are those of the layer's dictionary. Its error stays as it is when features are switched off, and is in "
    "no role and no fraction: what it carries, all features together do not."
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


def units_of(measured: MeasuredRuns) -> str:
    """The units that were measured: neurons, or features."""
    return getattr(measured.options, "units", "neurons")


def notes(measured: MeasuredRuns) -> list[str]:
    """Sentences on features, if they were measured."""
    return [OF_FEATURES] if units_of(measured) == "features" else []


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """Neurons by role, the skills that the top k carry, and the most needed neurons of the first seed."""
    first = {name: measured.results[name].isel(seed=0) for name in ("neurons", "selectivity", "agreement", "top")}
    units, top, spec = units_of(measured), measured.options.top, measured.runs[0].spec
    outputs = ms.report.output_symbols(spec.task)
    names = ("neurons", "selectivity", "agreement")
    listed = neuron_table(*(first[name] for name in names), top=top, outputs=outputs, units=units)
    causal = spec.model.attention_dir == "causal"
    shown = partial(sequence_text, symbols=token_symbols(measured), causal=causal)
    active = memory_table(first["neurons"], first["top"], top=top, outputs=outputs, shown=shown, units=units)
    return [
        role_table(measured.results["roles"], units),
        share_table(measured.results["shares"], units),
        listed,
        active,
    ]


def role_table(roles: xr.Dataset, units: str = "neurons") -> ms.report.Table:
    """The number of neurons with each role, the number of seeds in which some have it, and accuracy without them."""
    rows = []
    for role in roles.role.values:
        at = roles.sel(role=role)
        if int(at["size"].sum()):
            skills = [ms.report.mean_with_range(at.accuracy.sel(skill=skill), ".2f") for skill in roles.skill.values]
            rows.append(
                [str(role), ms.report.mean_with_range(at["size"], ".1f"), str(int((at["size"] > 0).sum())), *skills]
            )
    header = ["role", units, "seeds", *(f"{skill} without" for skill in roles.skill.values)]
    title = f"{units} by role, and accuracy without them"
    return ms.report.Table(name="by-role", title=title, header=header, rows=rows)


def share_table(shares: xr.Dataset, units: str = "neurons") -> ms.report.Table:
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
    title = f"fraction of each skill (accuracy) with k {units} kept"
    return ms.report.Table(name="top-k", title=title, header=["k", *columns], rows=rows)


def token_symbols(measured: MeasuredRuns) -> list[str]:
    """The names of all tokens of the task."""
    return ms.report.token_symbols(measured.runs[0].spec.task)


def neuron_table(
    neurons: xr.Dataset,
    selectivity: xr.Dataset,
    agreement: xr.Dataset,
    *,
    top: int,
    outputs: Sequence[str],
    units: str = "neurons",
) -> ms.report.Table:
    """The most needed neurons of one run, and what switching one off costs of every skill's log-probability (nats).

    `selectivity` is how often each is active, `agreement` its mean by target.
    """
    rows, costs = [], _costs(neurons)
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
            *(ms.report.single_number(float(cost), ".3f") for cost in costs.isel(neuron=i).values),
        ]
        rows.append(row)
    skills = [f"cost of {skill}" for skill in neurons.skill.values]
    header = (units[:-1], "role", "explained", "serves", "promotes", "fires for", "p(active)", *skills)
    title = f"{_title(neurons, units)}; what switching one off costs, in nats"
    return ms.report.Table(name="most-needed", title=title, header=header, rows=rows, n_text=4)


def memory_table(
    neurons: xr.Dataset,
    active: xr.Dataset,
    *,
    top: int,
    outputs: Sequence[str],
    shown: Callable[[Sequence[int], int], str],
    units: str = "neurons",
) -> ms.report.Table:
    """The same neurons: the logits that an activation of one changes most, and the sequences that activate them most.

    `active` is as `top` of `read_neurons`; `shown` gives the text of a sequence up to a position.
    """
    rows = []
    for i in _most_needed(neurons, top):
        at, seen = neurons.isel(neuron=i), active.isel(neuron=i)
        value = at.value.values
        chosen = {sign: at[name].values[:N_LOGITS].tolist() for name, sign in (("promoted", 1), ("suppressed", -1))}
        named = [[f"{outputs[t]} ({value[t]:+.2f})" for t in chosen[sign] if sign * value[t] > 0] for sign in chosen]
        changed = [", ".join(words) or "–" for words in named]
        places = [seen.isel(rank=rank) for rank in range(active.sizes["rank"]) if bool(seen.active[rank])]
        texts = [shown(place.inputs.values.tolist(), int(place.pos)) for place in places]
        texts = [f"{text} ({float(place.activation):.2f})" for text, place in zip(texts, places, strict=True)]
        rows.append([str(int(at.neuron)), *changed, *texts, *["–"] * (active.sizes["rank"] - len(texts))])
    ranks = ("most active on", "second", "third")[: active.sizes["rank"]]
    title = f"values and top sequences of {_title(neurons, units)}"
    return ms.report.Table(
        name="memories", title=title, header=(units[:-1], "raises", "lowers", *ranks), rows=rows, n_text=6
    )


def sequence_text(tokens: Sequence[int], pos: int, *, symbols: Sequence[str], causal: bool) -> str:
    """The end of a sequence, up to the position where heads see nothing behind it."""
    names = [symbols[token] for token in (tokens[: pos + 1] if causal else tokens)]
    joint = "" if len(symbols) > 12 and all(len(symbol) == 1 for symbol in symbols) else " "
    return ("… " if len(names) > MAX_SHOWN else "") + joint.join(names[-MAX_SHOWN:])


def _name(at: xr.DataArray, outputs: Sequence[str]) -> str:
    """The name of the output that a value is of."""
    return str(at["class"].item()) if "class" in at.coords else outputs[int(at.token)]


def _title(neurons: xr.Dataset, units: str) -> str:
    return f"the most needed {units} of seed {int(neurons.seed)}"


def _costs(neurons: xr.Dataset) -> xr.DataArray:
    """The cost of switching one off, (neuron, skill), in nats."""
    return (neurons.clean_log_prob - neurons.log_prob).transpose("neuron", "skill")


def _most_needed(neurons: xr.Dataset, top: int) -> list[int]:
    """The neurons whose removal costs most log-probability of any skill."""
    return _costs(neurons).max("skill").values.argsort()[::-1][:top].tolist()


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """The share of each skill over the number of neurons kept, and what the most needed neurons read and write.

    Keys and values have scales of their own: those of a feature differ by orders of magnitude.
    """
    from mnemoscope.report.figures import heatmaps

    neurons, units = measured.results["neurons"].isel(seed=0), units_of(measured)
    chosen = neurons.isel(neuron=_most_needed(neurons, measured.options.top)).rename(neuron=units[:-1])
    panels = {"read": key_panels(chosen), "write": {f"value: {chosen.value.dims[-1]}": chosen.value}}
    symbols = token_symbols(measured)
    return [
        (
            f"Fraction of each skill against the number of {units} kept; one line per seed.",
            share_figure(measured.results["shares"], units),
        ),
        *(
            (f"What {_title(neurons, units)} {word}.", heatmaps(each, symbols=symbols))
            for word, each in panels.items()
            if each
        ),
    ]


def share_figure(shares: xr.Dataset, units: str = "neurons") -> Any:
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
    figure.update_xaxes(title=f"k, {units} kept", type="category")
    figure.update_yaxes(title="fraction of the skill", row=1, col=1)
    return figure.update_layout(**ms.report.LAYOUT, height=360)


def key_panels(chosen: xr.Dataset) -> dict[str, xr.DataArray]:
    """Keys of some neurons or features: by tokens and positions, directly and through each head; none without keys."""
    kinds = {"token": "token", "pos": "position"}
    panels = {f"key: {word}": chosen[f"key_{kind}"] for kind, word in kinds.items() if f"key_{kind}" in chosen}
    for head, (kind, word) in product(chosen["head"].values.tolist() if panels else (), kinds.items()):
        if f"key_head_{kind}" in chosen:
            panels[f"key: {word}s read through H{head}"] = chosen[f"key_head_{kind}"].sel(head=head, drop=True)
    return panels


def finding(measured: MeasuredRuns) -> str:
    """The number of neurons, or features, that keep nearly all that the layer, or its features, add to every skill."""
    from mnemoscope.report.findings import MOST

    shares = measured.results["shares"]
    kept = shares.fraction.sel(part="kept", metric="accuracy")
    found = []
    for skill in map(str, shares.skill.values):
        mean = kept.sel(skill=skill).mean("seed")
        enough = [int(k) for k, value in zip(mean.k.values, mean.values, strict=True) if value >= MOST]
        total = shares.sizes["rank"]
        found.append(f"{enough[0]} of {total} for {skill}" if enough else f"for {skill} this could not be measured")
    whole = {"neurons": "their layer adds", "features": "all of them add"}[units := units_of(measured)]
    return f"{units.capitalize()} that keep {MOST:g} of what {whole} to the accuracy: {'; '.join(found)}."


register_module(__name__, Neurons, source="Geva et al. 2021 (feed-forward layers as key/value memories)")
