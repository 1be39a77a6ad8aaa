"""Readings of probes, and losses without what they read: tables and heatmaps."""

from collections.abc import Mapping
from itertools import product

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.viz.figures import heatmaps
from mnemoscope.viz.tables import Table, spread


def reading_table(found: xr.Dataset) -> Table:
    """Every latent at every site: score, chance and controls (also `untrained`), mean [range] over seeds."""
    rows = []
    for latent, site in product(found.latent.values, found.site.values):
        at = found.sel(latent=latent, site=site)
        cells = [at.score, at.chance, at.shuffled.mean("draw"), at.control_score.sel(control="untrained")]
        cells += [at.selectivity.sel(against="untrained"), at.told]
        rows.append([str(latent), str(site), *(spread(cell, ".2f") for cell in cells)])
    score = " or ".join(dict.fromkeys(found.unit.values.ravel().tolist()))
    words = ["latent", "site", score, "chance", "shuffled labels", "before training", "added by training"]
    header = [*words, "bits" if score == "accuracy" else "bits or R²"]
    title = f"what a linear probe reads at position {found.attrs['pos_name']}"
    return Table(name="read", title=title, header=header, rows=rows, n_text=2)


def reading_figure(found: xr.Dataset) -> go.Figure:
    """Scores of the trained and of the untrained model, sites by latents, mean over seeds; arguments as above."""
    panels = {"trained": found.score, "before training": found.control_score.sel(control="untrained", drop=True)}
    return _below(panels, low=0)


def erase_table(erased: xr.Dataset) -> Table:
    """Accuracy of each skill: the intact model, then with every latent erased at every site, beside both controls.

    `erased` is over (seed, latent, site, skill), NaN where nothing is erased. Cells are mean [range] over the seeds in
    which the latent is erased. Latents are left out at sites where they never are.
    """
    skills, intact = erased.skill.values, erased.clean_accuracy.max(["latent", "site"])
    first = [text for skill in skills for text in (spread(intact.sel(skill=skill), ".2f"), "–", "–")]
    rows = [["nothing", "", str(erased.sizes["seed"]), *first]]
    for latent, site in product(erased.latent.values, erased.site.values):
        at = erased.sel(latent=latent, site=site)
        if n := int(at.accuracy.notnull().any("skill").sum()):
            cells = [cell for skill in skills for cell in _beside(at.sel(skill=skill))]
            rows.append([str(latent), str(site), str(n), *(spread(cell, ".2f") for cell in cells)])
    words = [f"{skill}, {what}" for skill in skills for what in ("erased", "random", "shuffled")]
    title = f"accuracy with a latent erased at position {erased.attrs['pos_name']}"
    return Table(name="erased", title=title, header=["latent", "site", "seeds", *words], rows=rows, n_text=2)


def erase_figure(erased: xr.Dataset) -> go.Figure:
    """Accuracy lost beyond the control that costs more, sites by latents, mean over seeds; one panel per skill."""
    without, random, shuffled = _beside(erased)
    lost = xr.where(random < shuffled, random, shuffled) - without
    return _below({str(skill): lost.sel(skill=skill, drop=True) for skill in lost.skill.values}, low=-1)


def _beside(erased: xr.Dataset) -> list[xr.DataArray]:
    return [erased.accuracy, erased.random_accuracy.mean("draw"), erased.shuffled_accuracy.mean("draw")]


def _below(panels: Mapping[str, xr.DataArray], *, low: float) -> go.Figure:
    """Panels below each other, with the latents named below the last one."""
    means = {
        title: panel.mean("seed").rename(site="component").transpose("component", "latent")
        for title, panel in panels.items()
    }
    figure = heatmaps(means, low=low, high=1, columns=1)
    figure.update_xaxes(title="", showticklabels=False)
    return figure.update_xaxes(showticklabels=True, row=len(panels))
