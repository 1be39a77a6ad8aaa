"""The report on runs of the retrieval problem: partial losses, the circuit of attention, and how paths emerge."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
import xarray as xr

from mnemoscope import REPORTS, Batch, HookedModel, Run, generator
from mnemoscope.analyses import named_patterns, order_of_onsets, skill_trajectory
from mnemoscope.report import Opening, Page, Results, Table, plain_report, spread, trajectory_curves, vector_report
from mnemoscope.systems.retrieval.analyses.chain_attention import ELSEWHERE, chain_attention, path_name
from mnemoscope.systems.retrieval.analyses.circuit import LEVEL, chain_circuit, path_table
from mnemoscope.systems.retrieval.analyses.emergence import first_true_step, surviving
from mnemoscope.systems.retrieval.analyses.reach import bound, first_layers, least_layers
from mnemoscope.systems.retrieval.figures import circuit_figure, place_name, reach_figure
from mnemoscope.systems.retrieval.published import beside_published
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
    names = [[_called(place, of) for place, of in zip(*row, strict=True)] for row in rows]
    return named_patterns(model, batch, names)


def _called(place: int, chain: int) -> str:
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
    return [*vector_report.tables(results), *beside_published(results)]


def page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page."""
    vector_report.learned_section(page, results)
    page.section("Beside the published figures")
    for table in beside_published(results):
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
            _paths(page, int(seed), result["paths"].rise.sel(seed=seed))


def _paths(page: Page, seed: int, rise: xr.DataArray) -> None:
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
        "checkpoint; a path sets in at the first one at which it has half of the attention of its place."
    )
    for label, result in results.items():
        page.heading(label)
        if "trajectory" not in result:
            page.text("Not tracked yet: `mnemoscope track` takes these measures.")
            continue
        followed, rise = result["trajectory"], result["paths"].rise.sel(skill="all")
        attention = surviving(followed, rise)
        if not attention.sizes["path"]:
            page.text("No seed has a path that is needed.")
            continue
        attention = attention.assign_coords(path=_in_words(attention))
        names = attention["path"].values.tolist()
        shown = followed.assign({name: attention.sel(path=name, drop=True) for name in names})
        losses = [str(name) for name in followed.data_vars if str(name).startswith("loss_")]
        panels = {"squared error of each symbol": losses, "attention along the path": names}
        page.figure(trajectory_curves(shown, panels), "One line per seed.")
        _onsets(page, attention)


def _in_words(attention: xr.DataArray) -> list[str]:
    """For every path the place that fetches, and the place that it fetches from."""
    ends = zip(attention.place.values.tolist(), attention.to.values.tolist(), strict=True)
    return [f"{place_name(place)} ← {place_name(to)}" for place, to in ends]


def _onsets(page: Page, attention: xr.DataArray) -> None:
    onsets = first_true_step(attention >= LEVEL)
    in_circuit = attention.notnull().any("step")
    rows = []
    for name in attention["path"].values.tolist():
        there, when = int(in_circuit.sel(path=name).sum()), onsets.sel(path=name).dropna("seed")
        steps = spread(when, ".0f") if when.size else "never"
        rows.append([name, str(there), str(when.size), steps])
    header = ["path", "in circuits of seeds", "set in", "onset, step: mean [range]"]
    page.table(header, rows, "When the paths set in: who fetches ← from where")
    if attention.sizes["path"] > 1 and attention.sizes["seed"] > 1:
        found = order_of_onsets({name: onsets.sel(path=name, drop=True) for name in attention["path"].values.tolist()})
        share = float(found.commonest_share)
        page.text(f"The commonest order, in {share:.0%} of the seeds: {found.commonest_order.item()}.")


REPORTS.add(
    Retrieval.name,
    replace(
        vector_report.VECTORS,
        title="The retrieval problem",
        analyse=examine,
        page=page,
        tables=tables,
        opening=opening,
        predict=partial(vector_report.predict, knows=chain_of),
        patterns=patterns,
        trajectory=trajectory,
    ),
)
