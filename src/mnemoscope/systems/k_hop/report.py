"""The report on runs of k-fold composition: errors by number of hops, when they fall, and who holds what in between."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import xarray as xr

from mnemoscope import REPORTS, Batch, HookedModel, Run, generator
from mnemoscope.analyses import named_patterns, skill_trajectory
from mnemoscope.systems.k_hop.analyses import exchanged_halves, readable
from mnemoscope.systems.k_hop.tasks import KHop
from mnemoscope.viz import Page, Results, spread, vector_report

N_EXCHANGED = 512


def examine(run: Run) -> dict[str, xr.Dataset]:
    """All that any task of vectors has, probes of every number of hops, and the exchange of second halves."""
    task, seed, model = run.spec.task, run.spec.seed, run.model()
    assert isinstance(task, KHop)
    found = {
        **vector_report.examine(run, patterns),
        "readable": readable(model, run.untrained(), task, seed=seed),
    }
    if not any(2 * hops in task.hops for hops in task.hops):
        return found
    base, source = (
        task.sample(N_EXCHANGED, split="test", generator=generator(seed, "exchange", side)) for side in (0, 1)
    )
    return {**found, "halves": exchanged_halves(model, task, base, source)}


def page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page."""
    vector_report.learned_section(page, results)
    readable_section(page, results)
    halves_section(page, results)
    vector_report.later_sections(page, results)


def readable_section(page: Page, results: Mapping[str, Results]) -> None:
    """After which layer every number of hops can be read."""
    page.section("What can be read after which layer")
    page.text(
        "A linear probe for the symbol that so many hops lead to, one for all places, of the residual stream after "
        "every layer; in brackets behind it the same probe before training. One in N is chance. That something can be "
        "read does not say that the model reads it."
    )
    for label, result in results.items():
        page.heading(label)
        _by_layer(page, result["readable"], _with_control, "Accuracy of the probe, mean over seeds (before training)")


def _with_control(cell: xr.Dataset) -> str:
    return f"{float(cell.accuracy.mean()):.2f} ({float(cell.untrained.mean()):.2f})"


def halves_section(page: Page, results: Mapping[str, Results]) -> None:
    """Which layer holds the second half of every composition."""
    shown = {label: result["halves"] for label, result in results.items() if "halves" in result}
    if not shown:
        return
    page.section("Which layer holds the intermediate results")
    page.text(
        "2r hops are r hops, and r more from the function reached then. After each layer the places of that function "
        "are set to what they are in another sequence. Where they hold the second half, the answer becomes that of "
        "the other sequence from there on: how often it does is the interchange accuracy; one in N is chance."
    )
    for label, halves in shown.items():
        page.heading(label)
        title = "Interchange accuracy of the second half, mean [range] over seeds"
        _by_layer(page, halves, lambda cell: spread(cell.accuracy, ".2f"), title)


def _by_layer(page: Page, found: xr.Dataset, words: Callable[[xr.Dataset], str], title: str) -> None:
    """A row for each number of hops, a column for each layer."""
    layers = found.layer.values.tolist()
    rows = [
        [str(hops), *(words(found.sel(hops=hops, layer=layer)) for layer in layers)]
        for hops in found.hops.values.tolist()
    ]
    page.table(["hops", *(f"after layer {layer}" for layer in layers)], rows, title)


def patterns(model: HookedModel, task: KHop, batch: Batch) -> xr.Dataset:
    """The attention of every head; places are called by what they show, such as s2(0)=3."""
    places = [divmod(pos, task.n_symbols) for pos in range(task.n_ctx)]
    shown = batch.inputs.argmax(-1).tolist()
    names = [[f"s{f + 1}({x})={y}" for (f, x), y in zip(places, row, strict=True)] for row in shown]
    return named_patterns(model, batch, names)


REPORTS.add(
    KHop.name,
    replace(
        vector_report.VECTORS,
        title="k-fold composition",
        analyse=examine,
        page=page,
        patterns=patterns,
        trajectory=skill_trajectory,
    ),
)
