"""The report on runs of the retrieval problem: partial losses, the circuit of attention, and how paths emerge."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import plotly.graph_objects as go
import torch
import xarray as xr

from mnemoscope import REPORTS, Batch, HookedModel, Run, generator
from mnemoscope.analyses import named_patterns, order_of_onsets, skill_trajectory
from mnemoscope.report import (
    LAYOUT,
    Opening,
    Page,
    Results,
    Table,
    assign_colours,
    mean_with_range,
    plain_report,
    trajectory_curves,
    vector_report,
)
from mnemoscope.systems.retrieval.analyses import (
    ELSEWHERE,
    LEVEL,
    bound,
    chain_attention,
    chain_circuit,
    first_layers,
    first_true_step,
    least_layers,
    path_name,
    path_table,
    surviving,
)
from mnemoscope.systems.retrieval.published import published_comparison
from mnemoscope.systems.retrieval.tasks import Retrieval, symbol_name

N_CIRCUIT = 512
"""Sequences that the circuit is searched and tested on, half of them each."""
N_FOLLOWED = 32
"""Sequences that attention is averaged over along training, as in the source."""


def examine(run: Run) -> dict[str, xr.Dataset]:
    """All that any task of vectors has, and the circuit."""
    task = run.spec.task
    assert isinstance(task, Retrieval)
    batch = task.sample(N_CIRCUIT, split="test", generator=generator(run.spec.seed, "circuit"))
    circuit = chain_circuit(run.hooked(), batch, seed=run.spec.seed)
    losses = xr.Dataset(
        {
            "clean": circuit.joint.clean_loss,
            "all heads replaced": circuit.joint.loss,
            "paths that are not needed dropped": circuit.pruned.loss,
        },
        attrs={"tolerance": circuit.joint.attrs["tolerance"]},
    )
    tracked = run.trajectory()
    return {
        **vector_report.examine(run, patterns),
        "circuit": losses,
        "paths": path_table(circuit, run.hooked(), batch).assign_attrs(n_steps=task.n_steps),
        **({} if tracked is None else {"trajectory": tracked}),
    }


def trajectory(model: HookedModel, task: Retrieval, *, seed: int) -> xr.Dataset:
    """Partial losses of one checkpoint (`loss`, `loss_x1`, …), and as `0→4` the largest attention from place 0 to 4."""
    batch = task.sample(N_FOLLOWED, split="test", generator=generator(seed, "paths"))
    most = chain_attention(model, batch).max(("layer", "head"))
    ends = [to for to in most.to.values.tolist() if to != ELSEWHERE]
    paths = {
        path_name(place, int(to)): float(most.sel(place=place, to=to))
        for place in most.place.values.tolist()
        for to in ends
        if int(to) != place
    }
    return skill_trajectory(model, task, seed=seed).assign(paths)


def patterns(model: HookedModel, task: Retrieval, batch: Batch) -> xr.Dataset:
    """The attention of every head on sequences whose symbols are called by chain and place in it, such as A1, B1."""
    number, chain = (batch.latents[name].tolist() for name in ("place", "chain"))
    rows = zip(number, chain, strict=True)
    names = [[_name_symbols(place, of) for place, of in zip(*row, strict=True)] for row in rows]
    return named_patterns(model, batch, names)


def example_words(task: Retrieval, batch: Batch) -> tuple[str, str]:
    """The names of all symbols up to the first query, and its answer."""
    n = int(batch.scored[0].nonzero()[0]) + 1
    places, chains = (batch.latents[name][0, :n].tolist() for name in ("place", "chain"))
    names = [_name_symbols(place, chain) for place, chain in zip(places, chains, strict=True)]
    return " ".join(names), " ".join(_name_symbols(2 * step, chains[-1]) for step in task.due)


def _name_symbols(place: int, chain: int) -> str:
    return symbol_name(place // 2) + (str(chain + 1) if chain >= 0 else "–") + ("?" if place == 0 else "")


def chain_of(task: Retrieval, batch: Batch) -> list[str]:
    """The positions of the chain of every query; nothing elsewhere."""
    names = batch.positions
    lies = torch.stack([batch.latents[f"at_{place}"][0] for place in range(2 * task.n_steps + 1)], -1).tolist()
    query = batch.latents["place"][0] == 0
    return [
        " → ".join(names[at] for at in places[1:]) if asks else ""
        for places, asks in zip(lies, query.tolist(), strict=True)
    ]


def tables(results: Mapping[str, Results]) -> list[Table]:
    """Tables of the results, and the published figures beside ours."""
    return [*vector_report.tables(results), *published_comparison(results)]


def page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page."""
    vector_report.learned_section(page, results)
    page.section("Beside the published figures")
    for table in published_comparison(results):
        page.show(table)
    reach_section(page, results)
    circuit_section(page, results)
    emergence_section(page, results)
    vector_report.later_sections(page, results)


def opening(result: Results) -> Opening:
    """The course of training, and the circuit of the first seed that has one."""
    found, rise = plain_report.opening(result), result["paths"].rise.sel(skill="all")
    needed = rise.notnull().any([name for name in rise.dims if name != "seed"])
    seeds = rise.seed.values[needed.values].tolist()
    caption = "Seed {}: who fetches what from where."
    circuit = [(caption.format(seed), circuit_figure(rise.sel(seed=seed))) for seed in seeds[:1]]
    return replace(found, figures=[*found.figures, *circuit])


def reach_section(page: Page, results: Mapping[str, Results]) -> None:
    """The layers after which each place could know each piece."""
    page.section("What can be known after how many layers")
    page.text(
        "A place of a chain can attend to another one if they have a symbol or a code in common, and then knows all "
        "that the other one knew. Counted exactly for any number of heads, with the causal mask."
    )
    for n_steps in sorted({int(result["paths"].attrs["n_steps"]) for result in results.values()}):
        table = first_layers(n_steps, least_layers(n_steps, mask="forward"), mask="forward")
        least = {mask: least_layers(n_steps, mask=mask) for mask in ("none", "forward", "backward")}
        page.heading(f"D = {n_steps}")
        caption = (
            f"D = {n_steps}: at least {least['forward']} layers; without a mask {least['none']}, with the steps "
            f"backwards {least['backward']}; the published bound is log_3(2D) = {bound(n_steps):.2f}."
        )
        page.figure(reach_figure(table), caption)


def circuit_section(page: Page, results: Mapping[str, Results]) -> None:
    """The circuit of every seed: losses, and the first seed's paths as a picture."""
    page.section("The circuit of attention")
    page.text(
        "The attention of every head is replaced by the simplest pattern that holds the loss, and paths are dropped as "
        "long as one is not needed. What a path is worth is the rise of the squared error without it."
    )
    for label, result in results.items():
        page.heading(label)
        losses = result["circuit"]
        names = [str(name) for name in losses.data_vars]
        rows = [
            [str(int(seed)), *(f"{float(losses[name].sel(seed=seed, skill='all')):.4f}" for name in names)]
            for seed in losses.seed.values
        ]
        page.table(["seed", *names], rows, "Squared error on sequences that had no part in the choice")
        for seed in losses.seed.values:
            _path_section(page, int(seed), result["paths"].rise.sel(seed=seed))


def _path_section(page: Page, seed: int, rise: xr.DataArray) -> None:
    """The paths of one seed, as a picture and as a table."""
    found = rise.stack(path=("layer", "head", "place", "to")).dropna("path")
    if not found.sizes["path"]:
        page.text(f"Seed {seed}: no path is needed; the model does as well without attention to its chains.")
        return
    page.figure(circuit_figure(rise.sel(skill="all")), f"Seed {seed}: who fetches what from where.")
    rows = []
    for path in found["path"].values:
        layer, head, place, to = path
        rises = [f"{float(value):.3f}" for value in found.sel(path=path).values]
        rows.append([f"L{layer}H{head}", place_name(place), place_name(to), *rises])
    header = ["head", "reader", "fetches from", *(str(skill) for skill in rise.skill.values)]
    page.table(header, rows, f"Seed {seed}: rise of the squared error without each path", n_text=3)


def emergence_section(page: Page, results: Mapping[str, Results]) -> None:
    """The appearance of the circuits' paths in training, beside the partial losses."""
    page.section("How the paths emerge")
    page.text(
        "Attention along the paths of each seed's final circuit, of the head that attends most along it, at every kept "
        "checkpoint; a path has its onset at the first one at which it has half of the attention of its place."
    )
    for label, result in results.items():
        page.heading(label)
        if "trajectory" not in result:
            page.text("Not tracked yet: `mnemoscope evaluate --checkpoints` takes these measures.")
            continue
        followed, rise = result["trajectory"], result["paths"].rise.sel(skill="all")
        attention = surviving(followed, rise)
        if not attention.sizes["path"]:
            page.text("No seed has a path that is needed.")
            continue
        attention = attention.assign_coords(path=_describe_paths(attention))
        names = attention["path"].values.tolist()
        shown = followed.assign({name: attention.sel(path=name, drop=True) for name in names})
        losses = [str(name) for name in followed.data_vars if str(name).startswith("loss_")]
        panels = {"squared error of each symbol": losses, "attention along the path": names}
        page.figure(trajectory_curves(shown, panels), "One line per seed.")
        _onset_section(page, attention)


def _describe_paths(attention: xr.DataArray) -> list[str]:
    """For every path the place that fetches, and the place that it fetches from."""
    ends = zip(attention.place.values.tolist(), attention.to.values.tolist(), strict=True)
    return [f"{place_name(place)} ← {place_name(to)}" for place, to in ends]


def _onset_section(page: Page, attention: xr.DataArray) -> None:
    onsets = first_true_step(attention >= LEVEL)
    in_circuit = attention.notnull().any("step")
    rows = []
    for name in attention["path"].values.tolist():
        there, when = int(in_circuit.sel(path=name).sum()), onsets.sel(path=name).dropna("seed")
        steps = mean_with_range(when, ".0f") if when.size else "never"
        rows.append([name, str(there), str(when.size), steps])
    header = ["path", "in circuits of seeds", "with an onset", "onset, step: mean [range]"]
    page.table(header, rows, "Onsets of the paths: who fetches ← from where")
    if attention.sizes["path"] > 1 and attention.sizes["seed"] > 1:
        found = order_of_onsets({name: onsets.sel(path=name, drop=True) for name in attention["path"].values.tolist()})
        share = float(found.commonest_share)
        page.text(f"The commonest order, in {share:.0%} of the seeds: {found.commonest_order.item()}.")


def place_name(place: int) -> str:
    """A place of a chain in words: `query A`, `A in AB`, `B in AB`."""
    if place == 0:
        return f"query {symbol_name(0)}"
    step = (place + 1) // 2
    pair = symbol_name(step - 1) + symbol_name(step)
    return f"{symbol_name(place // 2)} in {pair}"


def reach_figure(first: xr.DataArray) -> go.Figure:
    """The layer after which each place of a chain can know each symbol and each code, from `first_layers`."""
    text = [["" if math.isnan(value) else f"{value:.0f}" for value in row] for row in first.values]
    heat = go.Heatmap(
        z=first.values,
        x=[_piece_name(piece) for piece in first.piece.values.tolist()],
        y=[place_name(place) for place in first.place.values.tolist()],
        text=text,
        texttemplate="%{text}",
        colorscale="Blues_r",
        colorbar={"title": "layers"},
        hovertemplate="%{y} knows %{x} after %{z} layers<extra></extra>",
    )
    figure = go.Figure(heat).update_layout(**LAYOUT, height=120 + 34 * len(first.place))
    return figure.update_yaxes(autorange="reversed", title="place").update_xaxes(title="piece of information")


def _piece_name(piece: str) -> str:
    number = int(piece[1:])
    return symbol_name(number) if piece[0] == "x" else "code of the query" if number == 0 else f"code of pair {number}"


def circuit_figure(rise: xr.DataArray) -> go.Figure:
    """The paths of a circuit: places of a chain from left to right, layers upwards.

    An arrow goes from the place attended to, before a layer, to the place that attends, after it. Its width grows with
    `rise` of the whole answer, from `path_table`.
    """
    layers, numbers, names = (rise[dim].values.tolist() for dim in ("layer", "head", "place"))
    finite = np.argwhere(np.isfinite(rise.values)).tolist()
    paths = [(layers[a], numbers[b], names[c], names[d], float(rise.values[a, b, c, d])) for a, b, c, d in finite]
    places = [*(int(place) for place in rise.place.values if place), 0]
    at = {place: x for x, place in enumerate(places)}
    used = sorted({path[0] for path in paths})
    figure = go.Figure(_stream_dots(len(places), len(used) + 1))
    for (layer, head, place, to, value), colour in zip(paths, _path_colours(paths), strict=True):
        y = used.index(layer)
        x = [at[to], at[place]]
        what = f"L{layer}H{head}: {place_name(place)} fetches from {place_name(to)}<br>without it +{value:.3f}"
        line = {"color": colour, "width": 1.5 + 4 * min(max(value, 0.0), 1.0)}
        marker = {"symbol": "arrow", "size": 12, "angleref": "previous"}
        style = {"line": line, "marker": marker, "hovertemplate": f"{what}<extra></extra>"}
        figure.add_trace(go.Scatter(x=x, y=[y, y + 1], mode="lines+markers", **style))
        label = {"text": f"L{layer}H{head} {symbol_name(to // 2)}", "font": {"size": 11, "color": colour}}
        between = {"x": 0.4 * x[0] + 0.6 * x[1], "y": y + 0.6}
        figure.add_annotation(**between, **label, showarrow=False, bgcolor="rgba(255,255,255,0.85)")
    figure.update_xaxes(tickvals=list(range(len(places))), ticktext=[place_name(place) for place in places])
    ticks = ["inputs", *(f"after layer {layer}" for layer in used)]
    figure.update_yaxes(tickvals=list(range(len(ticks))), ticktext=ticks, range=[-0.3, len(used) + 0.3])
    layout = {**LAYOUT, "margin": {"l": 100, "r": 20, "t": 20, "b": 60}, "showlegend": False}
    return figure.update_layout(**layout, height=150 + 100 * max(1, len(used)))


def _stream_dots(n_places: int, n_levels: int) -> go.Scatter:
    """The residual stream of every place before and after the layers that are shown."""
    return go.Scatter(
        x=list(range(n_places)) * n_levels,
        y=[level for level in range(n_levels) for _ in range(n_places)],
        mode="markers",
        marker={"size": 9, "color": "#c9ced8"},
        hoverinfo="skip",
    )


def _path_colours(paths: Sequence[tuple[int, int, int, int, float]]) -> list[str]:
    own = assign_colours(dict.fromkeys(f"L{layer}H{head}" for layer, head, *_ in paths))
    return [own[f"L{layer}H{head}"] for layer, head, *_ in paths]


REPORTS.add(
    Retrieval.name,
    replace(
        vector_report.VECTORS,
        title="The retrieval problem",
        about="Chains of symbols, which are random vectors, are shown as shuffled pairs of a symbol and the next one "
        "of its chain. A query at the end repeats the first symbol of a chain and asks for those that follow.",
        example_words=example_words,
        analyse=examine,
        page=page,
        tables=tables,
        opening=opening,
        predict=partial(vector_report.predict, knows=chain_of),
        patterns=patterns,
        trajectory=trajectory,
    ),
)
