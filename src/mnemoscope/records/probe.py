"""Linear probes by latent and site (`analyses.probes`): what is read beside controls, and lost when it is erased."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.core.runtime import progress
from mnemoscope.core.site import BY_HEAD, EMBEDDINGS, MLP, Kind, Site
from mnemoscope.records.audits import (
    AuditOptions,
    audit_figures,
    audit_finding,
    audit_run,
    audit_tables,
    check_audit,
)
from mnemoscope.records.record import MeasuredRuns, register_module, xr


@dataclass(frozen=True, kw_only=True)
class Probe(AuditOptions):
    """Linear probes: what can be read from activations, beside controls, and what is lost when it is erased."""

    latents: tuple[str, ...] = ()
    """Latents of the task, such as name or name[2], or target; none: target and all with one value per sequence or
    position."""
    sites: tuple[Kind, ...] = ()
    """Activations, in TransformerLens's words; none: z, resid_mid, post, mlp_out, resid_post."""
    pos: int | str | None = None
    """Position of the activations: a number from 0, negative from the end, or the task's name of a position, as x5;
    none: the last position with an answer."""
    erase: bool = True
    """Erase what was read, and measure the skills: most of the time goes there."""
    n: int = 512
    """Sequences of each subgroup to fit probes on, from the training set; as many to test them."""


LIMITS = (
    "A linear probe is fitted for every latent at every site, on sequences of the training set, and scored on others. "
    "Chance is the accuracy of the most frequent class. Two controls: the same with labels that are shuffled among "
    "sequences, and on a model of this architecture before training, from which much can be read too. What training "
    "has added is the difference to that one.",
    "This shows that a value can be read linearly at a place. It does not show that the model reads it there, nor that "
    "what is not read linearly is not there.",
)
ERASED = (
    "Whether it does: the directions of a latent are erased (LEACE), so that no linear probe finds it, and the skills "
    "are measured. Two controls: vectors as long in random directions, and the same procedure with shuffled labels. "
    "Where both spare a skill, it depends on what lies in these directions at this site. That need not be the latent "
    "alone, since latents that go together share directions; and where nothing is lost, another site may carry it. "
    "Latents are erased where the probe reads something of them; 'seeds' says in how many."
)
NAMES = "Heads are named by what they are needed for, on other prompts; before training the names mean nothing."

KINDS: tuple[Kind, ...] = ("z", "resid_mid", "post", "mlp_out", "resid_post")
"""Activations that are probed unless others are asked for."""
N_READ, N_ERASED = 5, 10
"""Draws of the controls when reading and when erasing."""
N_LATENTS = 512
"""Sequences that tell which latents there are: the same number for every `n`."""
LEAST = 0.01
"""Fewest bits, or smallest R², that a probe tells of a latent that is to be erased."""
_SCORES = ("accuracy", "log_prob")


def measure(run: ms.Run, options: Probe) -> dict[str, xr.Dataset]:
    """Probes of one run, and the losses when their latents are erased; sites by role."""
    from mnemoscope.core.dictionary_places import model_dictionaries
    from mnemoscope.core.positions import find_position

    model, seed = run.hooked(options.step), run.spec.seed
    fit, test = _prompts(run, options)
    last = int(test.scored.any(0).nonzero().max())
    given = last if options.pos is None else options.pos
    pos = find_position(given, test.positions, test.inputs.shape[1], argument="--pos")
    sites = _sites(model, ms.analyses.last_roles(run), options.sites, pos)
    latents = list(options.latents or _latents(run, pos))
    untrained: ms.HookedModel = run.untrained(own=True)
    if spliced := model_dictionaries(model):  # the same dictionaries of a model that has learned nothing
        untrained = ms.with_dictionaries(untrained, list(spliced.values()))
    common = {
        "sites": list(sites.values()),
        "test": test,
        "controls": {"untrained": untrained},
        "seed": seed,
    }
    pairs = list(product(latents, sites)) if options.erase else []
    n_pieces = len(latents) + len(pairs)
    common["per_prompt"] = options.audit
    probed = {name: ms.probe(model, fit, name, n_shuffles=N_READ, **common) for name in progress(latents, of=n_pieces)}
    read = [_scores(each.drop_dims("prompt") if options.audit else each) for each in probed.values()]
    found = xr.concat(read, xr.DataArray(latents, dims="latent", name="latent"), combine_attrs="drop_conflicts")
    attrs = {"pos": pos, "pos_name": test.position_name(pos), "split": options.split}
    found = found.assign_coords(site=list(sites)).assign_attrs(attrs)
    results = {"probes": found}
    if options.audit:

        def again(model: ms.HookedModel, latent: str) -> xr.Dataset:
            return ms.probe(model, fit, latent, n_shuffles=1, **{**common, "controls": {}})

        audits = audit_run(run, options, probed, dict.fromkeys(probed, test), again)
        audit = xr.concat(list(audits.values()), xr.DataArray(latents, dims="latent"), combine_attrs="drop_conflicts")
        results["audit"] = audit.isel(pos=0, drop=True).assign_coords(site=list(sites))
    if not options.erase:
        return results
    skills = {name: mask for name, mask in run.spec.task.skills(test).items() if mask.any()}
    cells = {}
    for latent, site in progress(pairs, after=len(latents), of=n_pieces):
        if found.told.sel(latent=latent, site=site) > LEAST:
            directions = ms.analyses.subspace(model, fit, latent, site=sites[site], n_shuffles=N_ERASED, seed=seed)
            cells[latent, site] = ms.analyses.erase(
                model, test, directions, skills=skills, n_random=N_ERASED, seed=seed
            )
    erased = _erase_together(cells, latents, list(sites), list(skills))
    erased = erased.assign_attrs(attrs, n=len(test))
    return {**results, "erased": erased}


def _prompts(run: ms.Run, options: Probe) -> tuple[ms.Batch, ms.Batch]:
    """Sequences to fit on and others to test on."""
    import torch

    task, seed = run.spec.task, run.spec.seed
    fit = task.monitor(options.n, split="train", generator=ms.generator(seed, "probe", "fit"))
    test = task.monitor(options.n, split=options.split, generator=ms.generator(seed, "probe", "test", options.split))
    same = torch.cat((fit.inputs, test.inputs)).unique(dim=0, return_inverse=True)[1]
    fit = fit.select(~torch.isin(same[: len(fit)], same[len(fit) :]))
    if not len(fit):
        raise InputError(f"all sequences of {task.name} to fit on are among those to test on; take a smaller --n")
    return fit, test


def _sites(model: ms.HookedModel, named: Mapping[str, str], kinds: Sequence[Kind], pos: int) -> dict[str, Site]:
    """Sites by name: for every kind those of all heads, by role, or of all layers."""
    from mnemoscope.analyses.roles import HEAD
    from mnemoscope.core.dictionary_places import site_layers

    heads = [tuple(int(number) for number in name[1:].split("H")) for name in named if HEAD.fullmatch(name)]
    found = []
    for kind in kinds or [kind for kind in KINDS if not (model.cfg.attn_only and kind in (*MLP, "resid_mid"))]:
        if kind in EMBEDDINGS:
            found.append(Site(kind=kind))
        elif kind in BY_HEAD:
            found += [Site(kind=kind, layer=layer, head=head) for layer, head in heads]
        else:
            found += [Site(kind=kind, layer=layer) for layer in site_layers(model, kind)]
    places = {ms.analyses.rename_heads(str(site), named): site for site in found}
    return {name: Site(kind=site.kind, layer=site.layer, head=site.head, pos=pos) for name, site in places.items()}


def _latents(run: ms.Run, pos: int) -> list[str]:
    """The answer, and all latents with one value there; among those that name the same classes the first."""
    from mnemoscope.analyses.probe_rows import latent_values

    batch = run.spec.task.monitor(N_LATENTS, split="train", generator=ms.generator(run.spec.seed, "probe", "latents"))
    shapes = (batch.inputs.shape[:1], batch.inputs.shape)
    names = ["target", *(name for name, values in batch.latents.items() if values.shape in shapes)]
    classes = {}
    for name in names:
        classes.setdefault(tuple(latent_values(batch, name)[:, pos].unique(return_inverse=True)[1].tolist()), name)
    return list(classes.values())


def _scores(found: xr.Dataset) -> xr.Dataset:
    """Accuracy of classes and R² of numbers as `score`; the information of a probe, in bits or as R², as `told`."""
    found = found.isel(pos=0, drop=True)
    if "r2" in found:
        return found.rename(r2="score").assign(told=found.r2, chance=xr.zeros_like(found.r2), unit="R²")
    return found.rename(accuracy="score").assign(told=found.information, unit="accuracy")


def _erase_together(
    cells: Mapping[tuple[str, str], xr.Dataset], latents: Sequence[str], sites: Sequence[str], skills: Sequence[str]
) -> xr.Dataset:
    """The results of `erase` for some latents at some sites, NaN at the others."""
    import numpy as np

    shape, axes = (len(latents), len(sites), len(skills)), ("latent", "site", "skill")
    arrays = {}
    for kind in ("", "clean_", "random_", "shuffled_"):
        draws = ("draw",) if kind in ("random_", "shuffled_") else ()
        for name in (kind + score for score in _SCORES):
            arrays[name] = ((*axes, *draws), np.full((*shape, *(N_ERASED,) * len(draws)), np.nan))
            for (latent, site), cell in cells.items():
                arrays[name][1][latents.index(latent), sites.index(site)] = cell[name].transpose("skill", ...)
    return xr.Dataset(arrays, coords={"latent": list(latents), "site": list(sites), "skill": list(skills)})


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """The readings and, where latents are erased, the skills without them."""
    read = reading_table(measured.results["probes"])
    erased = [erase_table(measured.results["erased"])] if "erased" in measured.results else []
    return [*audit_tables(measured), read, *erased]


def reading_table(found: xr.Dataset) -> ms.report.Table:
    """Every latent at every site: score, chance and controls (also `untrained`), mean [range] over seeds."""
    rows = []
    for latent, site in product(found.latent.values, found.site.values):
        at = found.sel(latent=latent, site=site)
        cells = [at.score, at.chance, at.shuffled.mean("draw"), at.control_score.sel(control="untrained")]
        cells += [at.selectivity.sel(against="untrained"), at.told]
        rows.append([str(latent), str(site), *(ms.report.mean_with_range(cell, ".2f") for cell in cells)])
    score = " or ".join(dict.fromkeys(found.unit.values.ravel().tolist()))
    words = ["latent", "site", score, "chance", "shuffled labels", "before training", "added by training"]
    header = [*words, "bits" if score == "accuracy" else "bits or R²"]
    title = f"what a linear probe reads at position {found.attrs['pos_name']}"
    return ms.report.Table(name="read", title=title, header=header, rows=rows, n_text=2)


def erase_table(erased: xr.Dataset) -> ms.report.Table:
    """Accuracy of each skill: the intact model, then with every latent erased at every site, beside both controls.

    `erased` is over (seed, latent, site, skill), NaN where nothing is erased. Cells are mean [range] over the seeds in
    which the latent is erased. Latents are left out at sites where they never are.
    """
    skills, intact = erased.skill.values, erased.clean_accuracy.max(["latent", "site"])
    first = [text for skill in skills for text in (ms.report.mean_with_range(intact.sel(skill=skill), ".2f"), "–", "–")]
    rows = [["nothing", "", str(erased.sizes["seed"]), *first]]
    for latent, site in product(erased.latent.values, erased.site.values):
        at = erased.sel(latent=latent, site=site)
        if n := int(at.accuracy.notnull().any("skill").sum()):
            cells = [cell for skill in skills for cell in _accuracies_with_controls(at.sel(skill=skill))]
            rows.append([str(latent), str(site), str(n), *(ms.report.mean_with_range(cell, ".2f") for cell in cells)])
    words = [f"{skill}, {what}" for skill in skills for what in ("erased", "random", "shuffled")]
    title = f"accuracy with a latent erased at position {erased.attrs['pos_name']}"
    return ms.report.Table(name="erased", title=title, header=["latent", "site", "seeds", *words], rows=rows, n_text=2)


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """Heatmaps of the readings and, where latents are erased, of the losses."""
    found = measured.results["probes"]
    where, several = found.attrs["pos_name"], found.sizes["seed"] > 1
    over = ", mean over seeds" if several else ""
    caption = f"What a linear probe reads at position {where}, and from a model before training{over}."
    read = (caption, reading_figure(found))
    if "erased" not in measured.results:
        return [read, *audit_figures(measured)]
    over = ", mean over the seeds in which it is erased" if several else ""
    what = f"Accuracy lost by erasing a latent at position {where}"
    caption = f"{what}, beyond what the control that costs more costs{over}."
    return [read, (caption, erase_figure(measured.results["erased"])), *audit_figures(measured)]


def reading_figure(found: xr.Dataset) -> Any:
    """Scores of the trained and of the untrained model, sites by latents, mean over seeds."""
    panels = {"trained": found.score, "before training": found.control_score.sel(control="untrained", drop=True)}
    return _stack_panels(panels, low=0)


def erase_figure(erased: xr.Dataset) -> Any:
    """Accuracy lost beyond the control that costs more, sites by latents, mean over seeds; one panel per skill."""
    without, random, shuffled = _accuracies_with_controls(erased)
    lost = xr.where(random < shuffled, random, shuffled) - without
    return _stack_panels({str(skill): lost.sel(skill=skill, drop=True) for skill in lost.skill.values}, low=-1)


def _accuracies_with_controls(erased: xr.Dataset) -> list[xr.DataArray]:
    return [erased.accuracy, erased.random_accuracy.mean("draw"), erased.shuffled_accuracy.mean("draw")]


def _stack_panels(panels: Mapping[str, xr.DataArray], *, low: float) -> Any:
    """Panels below each other, with the latents named below the last one."""
    from mnemoscope.report.figures import heatmaps

    means = {
        title: panel.mean("seed").rename(site="component").transpose("component", "latent")
        for title, panel in panels.items()
    }
    figure = heatmaps(means, low=low, high=1, columns=1)
    figure.update_xaxes(title="", showticklabels=False)
    return figure.update_xaxes(showticklabels=True, row=len(panels))


def finding(measured: MeasuredRuns) -> str:
    """The claims that an audit allows, and the site at which every latent is read best, beyond all controls."""
    probes: xr.Dataset = measured.results["probes"]
    beyond, found, unread = probes.selectivity.min("against"), [], []
    for latent in map(str, probes.latent.values):
        top = ms.report.findings.largest(beyond.sel(latent=latent))
        if top is None or top.mean < ms.report.findings.LEAST:
            unread.append(latent)
            continue
        score = probes.score.sel(latent=latent, site=top.place["site"])
        chance = float(probes.chance.sel(latent=latent, site=top.place["site"]).mean())
        found.append(
            f"{latent} from {top.place['site']} ({ms.report.mean_with_range(score, '.2f')}, chance {chance:.2f})"
        )
    sentences = [f"Read best beyond the controls: {'; '.join(found)}."] if found else []
    if unread:
        sentences.append(f"Not read anywhere beyond the controls: {', '.join(unread)}.")
    return audit_finding(measured) + " ".join(sentences)


def notes(measured: MeasuredRuns) -> Sequence[str]:
    """Notes on the erasure of latents, where there is one, and on the names of heads."""
    return (ERASED, NAMES) if "erased" in measured.results else (NAMES,)


check = check_audit


register_module(__name__, Probe)
