"""The report on runs of k-fold composition: errors by number of hops, when they fall, and who holds what in between."""

from collections.abc import Mapping
from dataclasses import replace

import xarray as xr

from mnemoscope import REPORTS, Run, generator
from mnemoscope.systems.k_hop.analyses import exchanged_halves
from mnemoscope.systems.k_hop.tasks import KHop
from mnemoscope.viz import Page, Results, spread, vector_report

N_EXCHANGED = 512


def examine(run: Run) -> dict[str, xr.Dataset]:
    """All that any task of vectors has, and the exchange of second halves."""
    task, found = run.spec.task, vector_report.examine(run)
    assert isinstance(task, KHop)
    if not any(2 * hops in task.hops for hops in task.hops):
        return found
    base, source = (
        task.sample(N_EXCHANGED, split="test", generator=generator(run.spec.seed, "exchange", side)) for side in (0, 1)
    )
    return {**found, "halves": exchanged_halves(run.model(), task, base, source)}


def page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page."""
    vector_report.learned_section(page, results)
    halves_section(page, results)
    vector_report.later_sections(page, results)


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
        layers = halves.layer.values.tolist()
        rows = [
            [str(hops), *(spread(halves.accuracy.sel(hops=hops, layer=layer), ".2f") for layer in layers)]
            for hops in halves.hops.values.tolist()
        ]
        header = ["hops", *(f"after layer {layer}" for layer in layers)]
        page.table(header, rows, "Interchange accuracy of the second half, mean [range] over seeds")


REPORTS.add(KHop.name, replace(vector_report.VECTORS, title="k-fold composition", analyse=examine, page=page))
