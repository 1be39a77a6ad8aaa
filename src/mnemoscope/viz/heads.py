"""Attention by mechanism: tables and figures."""

from collections import Counter

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.viz.figures import heatmaps
from mnemoscope.viz.tables import Table, single, spread

LEAST = 0.01
"""Share of attention from which a mechanism is shown."""


def mechanism_table(heads: xr.Dataset) -> Table:
    """For every role: the mechanisms found, in how many seeds each, and the cost (nats) of putting them in."""
    rows = []
    for role in heads.role.values:
        at = heads.sel(role=role)
        found = list(zip(at.best.values.tolist(), at.verdict.values.tolist(), strict=True))
        for (best, verdict), count in Counter(found).most_common():
            same = [i for i, each in enumerate(found) if each == (best, verdict)]
            chosen = at.isel(seed=same)
            numbers = spread(chosen.n_parameters, ".0f") if best != "none" else "–"
            rise = spread(chosen.rise.sel(skill="all"), ".3f")
            rows.append([str(role), best, verdict, str(count), numbers, rise])
    title = f"the simplest mechanism of every head that costs at most {heads.attrs['tolerance']:g} nats"
    header = ("head", "simplest mechanism", "verdict", "seeds", "numbers fitted", "loss rises by")
    return Table(name="mechanisms", title=title, header=header, rows=rows, n_text=3)


def joint_table(joint: xr.Dataset) -> Table:
    """For every seed: the loss (nats) with all explained heads replaced together."""
    rows = []
    for seed in joint.seed.values:
        at = joint.sel(seed=seed)
        losses = [single(float(at[name].sel(skill="all"))) for name in ("clean_loss", "loss")]
        holds = "–" if int(at.n_replaced) == 0 else "yes" if bool(at.holds) else "no"
        rows.append([str(int(seed)), str(int(at.n_replaced)), *losses, holds])
    header = ("seed", "replaced", "loss", "with mechanisms", "holds")
    return Table(name="together", title="all explained heads replaced together", header=header, rows=rows)


def path_table(paths: xr.DataTree) -> Table:
    """For every path of the replaced attention: in how many seeds it occurs, and in how many it is needed."""
    datasets = {name.removeprefix("seed-"): node.to_dataset() for name, node in paths.children.items()}
    some = {seed: found for seed, found in datasets.items() if "path" in found.coords}
    names = dict.fromkeys(str(name) for found in some.values() for name in found["path"].values)
    rows = []
    for name in names:
        cells = {seed: found.sel(path=name) for seed, found in some.items() if name in found["path"].values}
        rise = [float(cell.rise.sel(skill="all").max()) for cell in cells.values()]
        rises = xr.DataArray(rise, dims="seed", coords={"seed": list(map(int, cells))})
        needed = sum(bool(cell.needed) for cell in cells.values())
        rows.append([name, str(len(cells)), str(needed), spread(rises, ".3f")])
    title = "paths taken out one at a time, all explained heads replaced"
    return Table(
        name="without-path", title=title, header=("path", "seeds", "needed in", "loss without it rises by"), rows=rows
    )


def share_figures(shares: xr.Dataset) -> dict[str, go.Figure]:
    """Attention of every role, mean over seeds, by caption: divided among mechanisms, and key by key."""
    mean = shares[["exclusive", "mean_pattern"]].mean("seed")
    used = [str(part) for part in mean.part.values if float(mean.exclusive.sel(part=part).max()) >= LEAST]
    mean = mean.sel(part=used)
    figures = {}
    for subgroup in mean.subgroup.values:
        at = mean.sel(subgroup=subgroup, drop=True).rename(part="mechanism")
        for name, what, last in (
            ("exclusive", "shares of attention; a key that several mechanisms name counts for the first", "mechanism"),
            ("mean_pattern", "mean attention", "key"),
        ):
            panels = {str(role): at[name].sel(role=role, drop=True).transpose("query", last) for role in at.role.values}
            figures[f"{subgroup}: {what}."] = heatmaps(panels, low=0, high=1)
    return figures
