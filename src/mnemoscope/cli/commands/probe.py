"""`mnemoscope probe`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import mnemoscope as ms
from mnemoscope.cli.analysis import Results, Shown, analysis_command, xr
from mnemoscope.cli.options import AnalysisOptions
from mnemoscope.core.errors import InputError
from mnemoscope.core.progress import told
from mnemoscope.core.site import BY_HEAD, EMBEDDINGS, MLP, Kind, Site


@dataclass(frozen=True, kw_only=True)
class Probe(AnalysisOptions):
    """Linear probes: what can be read from activations, beside controls, and what is lost when it is erased."""

    latents: tuple[str, ...] = ()
    """Of the task, such as name or name[2]; or target. None: that, and all with one value per sequence or position."""
    sites: tuple[Kind, ...] = ()
    """Activations, in TransformerLens's words; none: z, resid_mid, post, mlp_out, resid_post."""
    pos: int | str | None = None
    """Where they are read: a number from 0, negative from the end, or the task's name of a position, such as x5; none:
    the last position with an answer."""
    erase: bool = True
    """Erase what was read, and measure the skills: most of the time goes there."""
    n: int = 512
    """Sequences of each subgroup to fit probes on, from training mappings; as many to test them."""


NOTES = (
    "A linear probe is fitted for every latent at every site, on sequences of training mappings, and scored on others. "
    "Chance is the accuracy of the most frequent class. Two controls: the same with labels that are shuffled among "
    "sequences, and on a model of this architecture before training, from which much can be read too. What training "
    "has added is the difference to that one.",
    "This shows that a value can be read linearly at a place. It does not show that the model reads it there, nor that "
    "what is not read linearly is not there.",
    "Heads are named by what they are needed for, on other prompts; before training the names mean nothing.",
)
ERASED = (
    "Whether it does: the directions of a latent are erased (LEACE), so that no linear probe finds it, and the skills "
    "are measured. Two controls: vectors as long in random directions, and the same procedure with shuffled labels. "
    "Where both spare a skill, it depends on what lies in these directions at this site. That need not be the latent "
    "alone, since latents that go together share directions; and where nothing is lost, another site may carry it. "
    "Latents are erased where the probe reads something of them; 'seeds' says in how many."
)

KINDS: tuple[Kind, ...] = ("z", "resid_mid", "post", "mlp_out", "resid_post")
"""Activations that are probed unless others are asked for."""
N_READ, N_ERASED = 5, 10
"""Draws of the controls of reading and of erasing."""
N_LATENTS = 512
"""Sequences that tell which latents there are, the same number whatever is measured."""
LEAST = 0.01
"""Bits, or R², that a probe has to tell of a latent that is to be erased."""
_MEASURES = ("accuracy", "log_prob")


def probe_run(run: ms.Run, options: Probe) -> dict[str, xr.Dataset]:
    """Probes of one run, and what is lost without what they read; sites by role."""
    from mnemoscope.core.positions import number

    model, seed = run.hooked(options.step), run.spec.seed
    fit, test = _prompts(run, options)
    last = int(test.scored.any(0).nonzero().max())
    given = last if options.pos is None else options.pos
    pos = number(given, test.positions, test.inputs.shape[1], argument="--pos")
    sites = _sites(model, ms.analyses.last_roles(run), options.sites, pos)
    latents = list(options.latents or _latents(run, pos))
    common = {
        "sites": list(sites.values()),
        "test": test,
        "controls": {"untrained": run.untrained(own=True)},
        "seed": seed,
    }
    pairs = list(product(latents, sites)) if options.erase else []
    n_pieces = len(latents) + len(pairs)
    read = [_scores(ms.probe(model, fit, name, n_shuffles=N_READ, **common)) for name in told(latents, of=n_pieces)]
    found = xr.concat(read, xr.DataArray(latents, dims="latent", name="latent"), combine_attrs="drop_conflicts")
    found = found.assign_coords(site=list(sites)).assign_attrs(pos=pos, pos_name=test.called(pos), split=options.split)
    if not options.erase:
        return {"probes": found}
    skills = {name: mask for name, mask in run.spec.task.skills(test).items() if mask.any()}
    cells = {}
    for latent, site in told(pairs, after=len(latents), of=n_pieces):
        if found.told.sel(latent=latent, site=site) > LEAST:
            directions = ms.analyses.subspace(model, fit, latent, site=sites[site], n_shuffles=N_ERASED, seed=seed)
            cells[latent, site] = ms.analyses.erase(
                model, test, directions, skills=skills, n_random=N_ERASED, seed=seed
            )
    erased = _together(cells, latents, list(sites), list(skills))
    erased = erased.assign_attrs(pos=pos, pos_name=test.called(pos), split=options.split, n=len(test))
    return {"probes": found, "erased": erased}


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
    """Sites by name: of every kind those of all heads, by role, or of all layers."""
    from mnemoscope.analyses.roles import HEAD

    heads = [tuple(int(number) for number in name[1:].split("H")) for name in named if HEAD.fullmatch(name)]
    found = []
    for kind in kinds or [kind for kind in KINDS if not (model.cfg.attn_only and kind in (*MLP, "resid_mid"))]:
        if kind in EMBEDDINGS:
            found.append(Site(kind=kind))
        elif kind in BY_HEAD:
            found += [Site(kind=kind, layer=layer, head=head) for layer, head in heads]
        else:
            found += [Site(kind=kind, layer=layer) for layer in range(model.cfg.n_layers)]
    places = {ms.analyses.called(str(site), named): site for site in found}
    return {name: Site(kind=site.kind, layer=site.layer, head=site.head, pos=pos) for name, site in places.items()}


def _latents(run: ms.Run, pos: int) -> list[str]:
    """The answer, and all latents that have one value there; of those that name the same classes the first."""
    from mnemoscope.analyses.probes.rows import latent_values

    batch = run.spec.task.monitor(N_LATENTS, split="train", generator=ms.generator(run.spec.seed, "probe", "latents"))
    shapes = (batch.inputs.shape[:1], batch.inputs.shape)
    names = ["target", *(name for name, values in batch.latents.items() if values.shape in shapes)]
    classes = {}
    for name in names:
        classes.setdefault(tuple(latent_values(batch, name)[:, pos].unique(return_inverse=True)[1].tolist()), name)
    return list(classes.values())


def _scores(found: xr.Dataset) -> xr.Dataset:
    """Accuracy of classes and R² of numbers as `score`; what a probe tells, in bits or as R², as `told`."""
    found = found.isel(pos=0, drop=True)
    if "r2" in found:
        return found.rename(r2="score").assign(told=found.r2, chance=xr.zeros_like(found.r2), unit="R²")
    return found.rename(accuracy="score").assign(told=found.information, unit="accuracy")


def _together(
    cells: Mapping[tuple[str, str], xr.Dataset], latents: Sequence[str], sites: Sequence[str], skills: Sequence[str]
) -> xr.Dataset:
    """The results of `erase` for some latents at some sites, NaN at the others."""
    import numpy as np

    shape, axes = (len(latents), len(sites), len(skills)), ("latent", "site", "skill")
    arrays = {}
    for kind in ("", "clean_", "random_", "shuffled_"):
        draws = ("draw",) if kind in ("random_", "shuffled_") else ()
        for name in (kind + measure for measure in _MEASURES):
            arrays[name] = ((*axes, *draws), np.full((*shape, *(N_ERASED,) * len(draws)), np.nan))
            for (latent, site), cell in cells.items():
                arrays[name][1][latents.index(latent), sites.index(site)] = cell[name].transpose("skill", ...)
    return xr.Dataset(arrays, coords={"latent": list(latents), "site": list(sites), "skill": list(skills)})


def _shown(results: Results, options: Probe, runs: Sequence[ms.Run]) -> Shown:
    from mnemoscope.viz.findings import read
    from mnemoscope.viz.probes import erase_figure, erase_table, reading_figure, reading_table

    found = results["probes"]
    over = ", mean over seeds" if found.sizes["seed"] > 1 else ""
    tables = [reading_table(found)]
    caption = (
        f"What a linear probe reads at position {found.attrs['pos_name']}, and from a model before training{over}."
    )
    figures = [(caption, reading_figure(found))]
    if "erased" not in results:
        return Shown(finding=read(found), tables=tables, figures=figures, notes=NOTES)
    lost = results["erased"]
    over = ", mean over the seeds in which it is erased" if over else ""
    what = f"Accuracy lost by erasing a latent at position {found.attrs['pos_name']}"
    caption = f"{what}, beyond what the control that costs more costs{over}."
    figures.append((caption, erase_figure(lost)))
    notes = [NOTES[0], NOTES[1], ERASED, NOTES[2]]
    return Shown(finding=read(found), tables=[*tables, erase_table(lost)], figures=figures, notes=notes)


analysis_command("probe", Probe, measure=probe_run, show=_shown)
