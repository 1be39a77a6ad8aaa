"""Attention by mechanism (`analyses.attention_replacement`): the simplest for each head, for all, and needed paths."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import mnemoscope as ms
from mnemoscope.core.errors import in_range, pluralise
from mnemoscope.records.audits import (
    AuditOptions,
    audit_figures,
    audit_finding,
    audit_run,
    audit_tables,
    check_audit,
)
from mnemoscope.records.record import MeasuredRuns, draw_sequences, register_module, xr


@dataclass(frozen=True, kw_only=True)
class Heads(AuditOptions):
    """Attention by mechanism: the simplest that can stand in for each head, for all together, and which paths count."""

    tolerance: float | None = None
    """Loss (nats) that a mechanism may cost; none: the fixed default."""
    n: int = 2048
    """Sequences of each subgroup; one half searches the mechanisms, the other is measured."""


LIMITS = (
    "A mechanism is an attention pattern that follows from the sequence. For every head the simplest one is sought "
    "that holds the loss of every skill in its place and does better than with its targets taken from another "
    "sequence; then all are put in together, and their paths are taken out one at a time. Search and test use "
    "different prompts.",
    "A mechanism that holds the loss says what the head's attention amounts to, not how it is computed. 'not needed': "
    "the head can be set to its mean at no cost, alone; 'unexplained': no mechanism that was tried will do.",
)
LEAST = 0.01
"""Smallest share of attention for which a mechanism is shown."""


def check(options: Heads) -> None:
    """Refuse a tolerance below zero, and options of an audit that do not fit."""
    check_audit(options)
    if options.tolerance is not None:
        in_range("--tolerance", options.tolerance, 0, float("inf"))


def measure(run: ms.Run, options: Heads) -> dict[str, xr.Dataset]:
    """Search the mechanisms of one run; heads have their roles as names."""
    from mnemoscope.analyses.attention_replacement.losses import TOLERANCE

    task, seed = run.spec.task, run.spec.seed
    batch = draw_sequences(run, options, "heads")
    tolerance = TOLERANCE if options.tolerance is None else options.tolerance
    results = ms.analyses.read_heads(run.hooked(options.step), task, batch, tolerance=tolerance, seed=seed)
    named = ms.analyses.last_roles(run)
    joint, paths = results.pop("joint"), results.pop("paths")
    if options.audit:

        def scores(model: ms.HookedModel, _: str = "") -> xr.Dataset:
            return ms.analyses.head_scores(model, batch, per_prompt=True)

        measured = {"audit": scores(run.hooked(options.step))}
        results |= audit_run(run, options, measured, {"audit": batch}, scores)
    names = [ms.analyses.rename_heads(str(name), named) for name in paths.get("path", xr.DataArray([])).values]
    return {
        "joint": joint.assign(n_replaced=joint.attrs["n_replaced"]),
        "paths": paths.assign_coords(path=names) if names else paths,
        **{name: ms.analyses.by_role(result, named) for name, result in results.items()},
    }


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """The mechanism of every head, the loss with all of them together, and the loss without each path."""
    found = measured.results
    shown = [mechanism_table(found["heads"]), joint_table(found["joint"]), path_table(found["paths"])]
    return [*audit_tables(measured), *shown]


def mechanism_table(heads: xr.Dataset) -> ms.report.Table:
    """For every role: the mechanisms found, in how many seeds each, and the cost (nats) of putting them in."""
    rows = []
    for role in heads.role.values:
        at = heads.sel(role=role)
        found = list(zip(at.best.values.tolist(), at.verdict.values.tolist(), strict=True))
        for (best, verdict), count in Counter(found).most_common():
            same = [i for i, each in enumerate(found) if each == (best, verdict)]
            chosen = at.isel(seed=same)
            numbers = ms.report.mean_with_range(chosen.n_parameters, ".0f") if best != "none" else "–"
            rise = ms.report.mean_with_range(chosen.rise.sel(skill="all"), ".3f")
            rows.append([str(role), best, verdict, str(count), numbers, rise])
    title = f"the simplest mechanism of every head that costs at most {heads.attrs['tolerance']:g} nats"
    header = ("head", "simplest mechanism", "verdict", "seeds", "numbers fitted", "loss rises by")
    return ms.report.Table(name="mechanisms", title=title, header=header, rows=rows, n_text=3)


def joint_table(joint: xr.Dataset) -> ms.report.Table:
    """For every seed: the loss (nats) with all explained heads replaced together."""
    rows = []
    for seed in joint.seed.values:
        at = joint.sel(seed=seed)
        losses = [ms.report.single_number(float(at[name].sel(skill="all"))) for name in ("clean_loss", "loss")]
        holds = "–" if int(at.n_replaced) == 0 else "yes" if bool(at.holds) else "no"
        rows.append([str(int(seed)), str(int(at.n_replaced)), *losses, holds])
    header = ("seed", "replaced", "loss", "with mechanisms", "holds")
    return ms.report.Table(name="together", title="all explained heads replaced together", header=header, rows=rows)


def path_table(paths: xr.DataTree) -> ms.report.Table:
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
        rows.append([name, str(len(cells)), str(needed), ms.report.mean_with_range(rises, ".3f")])
    return ms.report.Table(
        name="without-path",
        title="paths taken out one at a time, all explained heads replaced",
        header=("path", "seeds", "needed in", "loss without it rises by"),
        rows=rows,
    )


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """The attention of every role in each subgroup: divided among mechanisms, and key by key."""
    return [*share_figures(measured.results["shares"]).items(), *audit_figures(measured)]


def share_figures(shares: xr.Dataset) -> dict[str, Any]:
    """Attention of every role, mean over seeds, by caption: divided among mechanisms, and key by key."""
    from mnemoscope.report.figures import heatmaps

    mean = shares[["exclusive", "mean_pattern"]].mean("seed")
    used = [str(part) for part in mean.part.values if float(mean.exclusive.sel(part=part).max()) >= LEAST]
    mean = mean.sel(part=used)
    found = {}
    for subgroup in mean.subgroup.values:
        at = mean.sel(subgroup=subgroup, drop=True).rename(part="mechanism")
        for name, what, last in (
            ("exclusive", "shares of attention; a key that several mechanisms name counts for the first", "mechanism"),
            ("mean_pattern", "mean attention", "key"),
        ):
            panels = {str(role): at[name].sel(role=role, drop=True).transpose("query", last) for role in at.role.values}
            found[f"{subgroup}: {what}."] = heatmaps(panels, low=0, high=1)
    return found


def finding(measured: MeasuredRuns) -> str:
    """The claims that an audit of the usual scores allows, the mechanism of every head, and the loss with all."""
    heads, joint = measured.results["heads"], measured.results["joint"]
    n, found = heads.sizes["seed"], []
    for role in map(str, heads.role.values):
        explained = [best for best in heads.best.sel(role=role).values.tolist() if best != "none"]
        how = f" (most often by “{Counter(explained).most_common(1)[0][0]}”)" if explained else ""
        found.append(f"the {role.removeprefix('the ')} in {len(explained)} of {pluralise(n, 'seed')}{how}")
    replaced = joint.holds.astype(bool) & (joint.n_replaced > 0)
    falls = (joint.rise < -heads.attrs["tolerance"]).any("skill")
    held, lower = int((replaced & ~falls).sum()), int((replaced & falls).sum())
    tolerance = f"{heads.attrs['tolerance']:g} {heads.attrs['loss_unit']}"
    sentences = [
        f"A mechanism stands in for {'; for '.join(found)}.",
        f"Explained heads replaced together keep the loss within {tolerance} in {held} of {pluralise(n, 'seed')}.",
        *([f"In {lower} it falls by more: the heads were not helping."] if lower else []),
    ]
    return audit_finding(measured) + " ".join(sentences)


register_module(
    __name__,
    Heads,
    source='Musat, "Mechanism and emergence of stacked attention heads in multi-layer transformers"',
    apart=("paths", "selection"),
    vectors=True,
)
