"""Findings of analyses, one sentence each, made from the numbers: with them a page opens.

A sentence names what is largest and how large it is, as mean [range] over seeds, or says that there is nothing to name.
It ranks parts by the analysis' own measure, and says no more than that measure shows.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from mnemoscope.core import positions
from mnemoscope.core.statistics import mean_interval
from mnemoscope.viz.ablation import damage, measure_of
from mnemoscope.viz.tables import counted, interval, spread

LEAST = 0.01
"""A share of accuracy or of a difference below which a part is not named, or a rise of the squared error."""
MOST = 0.9
"""Share of a whole that counts as nearly all of it."""


@dataclass(frozen=True, kw_only=True)
class Largest:
    """The place of the largest result in the mean over seeds.

    Attributes:
        place: Dimension to label there, in words.
        values: Along `seed`.
    """

    place: Mapping[str, str]
    values: xr.DataArray

    @property
    def mean(self) -> float:
        """Over the seeds that have a value."""
        return float(self.values.mean("seed"))


def largest(values: xr.DataArray) -> Largest | None:
    """The place of the largest mean over seeds over all other dimensions; None where there is nothing but NaN."""
    mean = values.mean("seed")
    if not bool(mean.notnull().any()):
        return None
    at = {name: int(index) for name, index in mean.argmax(mean.dims).items()}  # pyright: ignore[reportAttributeAccessIssue]
    chosen = values.isel(at)
    dims = [str(name) for name in mean.dims]
    labels = {
        name: positions.shown(values, name)[at[name]] if name in values.coords else str(at[name]) for name in dims
    }
    return Largest(place=labels, values=chosen)


def removal(ablation: xr.Dataset, *, least: float = LEAST) -> str:
    """The part that every skill needs most, by mean ablation where that was tried.

    Args:
        ablation: Over kind, role and skill, along `seed`.
        least: Damage below which no part is named.
    """
    kinds = ablation.kind.values.tolist()
    kind = "mean" if "mean" in kinds else kinds[0]
    lost, change = damage(ablation.sel(kind=kind)), measure_of(ablation).change
    found, spared = [], []
    for skill in map(str, ablation.skill.values):
        top = largest(lost.sel(skill=skill))
        if top is None or top.mean < least:
            spared.append(skill)
        else:
            part = top.place["role"].removeprefix("the ")
            found.append(f"{skill} needs the {part} most ({spread(top.values, '.2f')} {change})")
    sentences = [f"By {kind} ablation {'; '.join(found)}."] if found else []
    if spared:
        sentences.append(f"No single part costs {' or '.join(spared)} {least:g} or more.")
    return " ".join(sentences)


def trained(metrics: xr.Dataset) -> str:
    """The accuracy of every skill on unseen sequences at the end of training, or the loss where there is none.

    Args:
        metrics: Over step, along `seed`, from training.
    """
    last = metrics.isel(step=-1)
    skills = [str(name) for name in last.data_vars if str(name).startswith("test_") and "loss" not in str(name)]
    if not skills:
        return f"At the end of training the loss on unseen sequences is {spread(last.test_loss, '.3f')}."
    found = (f"{name.removeprefix('test_').replace('_', ' ')} {spread(last[name], '.2f')}" for name in skills)
    return f"Accuracy on unseen sequences at the end of training: {', '.join(found)}."


def rises(values: xr.DataArray, name: str) -> str:
    """When a measure of training has risen half way from its first value to its last.

    Args:
        values: Over step, along `seed`.
        name: Of the measure, in words.
    """
    first, last = values.isel(step=0), values.isel(step=-1)
    there = values >= (first + last) / 2
    steps = there.step.isel(step=there.argmax("step"))
    return (
        f"{name[0].upper()}{name[1:]} goes from {spread(first, '.2f')} to {spread(last, '.2f')}, half of the way by "
        f"step {spread(steps, '.0f')}."
    )


def grows(model: str, amount: str, size: str, exponents: xr.DataArray, *, expected: float) -> str:
    """The power of a size with which an amount grows, and whether that is the expected one.

    Args:
        model: Whose.
        amount: What grows.
        size: With what.
        exponents: Over draw; NaN where a draw has none.
        expected: By theory, or as published.
    """
    mean, low, high = (float(end) for end in mean_interval(exponents))
    called = f"{model[0].upper()}{model[1:]}"
    if not low <= high:
        return f"{called}: too few draws have an exponent."
    held = "holds" if low <= expected <= high else "leaves out"
    draws = counted(int(exponents.count()), "draw")
    return (
        f"{called}: {amount} grows with {size} to the power of {interval(mean, low, high, '.2f')}, mean over {draws} "
        f"with its 95 % interval, which {held} the expected {expected:g}."
    )


def carried(by_skill: Mapping[str, xr.Dataset], *, what: str) -> str:
    """The single patch that costs most of the difference between clean and corrupted prompts, by skill.

    Args:
        by_skill: `ratio` over direction, metric and what was swept, along `seed`.
        what: What is patched, such as "resid_pre" or "edge".
    """
    found = []
    for skill, result in by_skill.items():
        metric = result.metric.values[0]
        top = largest(result.ratio.sel(direction="noising", metric=metric, drop=True))
        if top is not None and top.mean >= LEAST:
            place = ", ".join(
                value if name == "edge" else f"{positions.word(name)} {value}" for name, value in top.place.items()
            )
            found.append(f"for {skill} at {place} ({spread(top.values, '.2f')} of the difference is lost)")
    if not found:
        return f"No single patch of {what} loses {LEAST:g} of the difference or more."
    return f"Patching {what} into the clean run costs most {'; '.join(found)}."


def circuits(by_skill: Mapping[str, xr.Dataset]) -> str:
    """The smallest circuit of every skill that stays as faithful as asked on prompts that did not choose it."""
    found, target = [], next(iter(by_skill.values())).attrs["target"]
    for skill, result in by_skill.items():
        size = result.sizes["edge"]
        held = result.faithfulness.mean("seed") >= target
        sizes = result.n_edges.mean("seed").where(held)
        if not bool(sizes.notnull().any()):
            found.append(f"for {skill} no search found one")
            continue
        at = int(sizes.argmin("search"))
        edges, kept = spread(result.n_edges.isel(search=at), ".0f"), spread(result.faithfulness.isel(search=at), ".2f")
        found.append(f"for {skill} {edges} of {size} edges ({result.search.values[at]}; faithfulness {kept})")
    return f"Circuits that keep {target:g} of the metric on other prompts: {'; '.join(found)}."


def mechanisms(heads: xr.Dataset, joint: xr.Dataset) -> str:
    """By which mechanism every head can be replaced, and whether all can at once."""
    n, found = heads.sizes["seed"], []
    for role in map(str, heads.role.values):
        explained = [best for best in heads.best.sel(role=role).values.tolist() if best != "none"]
        how = f" (most often by “{Counter(explained).most_common(1)[0][0]}”)" if explained else ""
        found.append(f"the {role} in {len(explained)} of {counted(n, 'seed')}{how}")
    together = int((joint.holds.astype(bool) & (joint.n_replaced > 0)).sum())
    tolerance = f"{heads.attrs['tolerance']:g} {heads.attrs['loss_unit']}"
    return (
        f"A mechanism stands in for {'; for '.join(found)}. Explained heads replaced together keep the loss within "
        f"{tolerance} in {together} of {counted(n, 'seed')}."
    )


def sparsity(shares: xr.Dataset) -> str:
    """The number of neurons that keep nearly all that the layer adds to every skill."""
    kept = shares.fraction.sel(part="kept", metric="accuracy")
    found = []
    for skill in map(str, shares.skill.values):
        mean = kept.sel(skill=skill).mean("seed")
        enough = [int(k) for k, value in zip(mean.k.values, mean.values, strict=True) if value >= MOST]
        total = shares.sizes["rank"]
        found.append(f"{enough[0]} of {total} for {skill}" if enough else f"for {skill} this could not be measured")
    return f"Neurons that keep {MOST:g} of what their layer adds to the accuracy: {'; '.join(found)}."


def read(probes: xr.Dataset) -> str:
    """The site at which every latent is read best, beyond all controls."""
    beyond, found, unread = probes.selectivity.min("against"), [], []
    for latent in map(str, probes.latent.values):
        top = largest(beyond.sel(latent=latent))
        if top is None or top.mean < LEAST:
            unread.append(latent)
            continue
        score = probes.score.sel(latent=latent, site=top.place["site"])
        chance = float(probes.chance.sel(latent=latent, site=top.place["site"]).mean())
        found.append(f"{latent} from {top.place['site']} ({spread(score, '.2f')}, chance {chance:.2f})")
    sentences = [f"Read best beyond the controls: {'; '.join(found)}."] if found else []
    if unread:
        sentences.append(f"Not read anywhere beyond the controls: {', '.join(unread)}.")
    return " ".join(sentences)


def attributed(values: xr.Dataset) -> str:
    """The part with the largest Shapley value of every skill, and its share of the whole."""
    metric = "accuracy" if "accuracy" in values.metric else values.metric.values[0]
    kind, found = values.kind.values[0], []
    for skill in map(str, values.skill.values):
        at = values.sel(skill=skill, metric=metric, kind=kind)
        top = largest(at.value)
        if top is not None:
            whole = spread(at.carried, ".2f")
            found.append(f"{skill}: the {top.place['role']} ({spread(top.values, '.2f')} of {whole})")
    return f"The part with the largest Shapley value, in {metric}, {kind} ablation: {'; '.join(found)}."


def ranks(truncation: xr.Dataset) -> str:
    """The number of singular directions that every target needs, of the weight or weights that were cut last."""
    weight = str(truncation.weight.values[-1])
    at = truncation.sel(weight=weight)
    if "top" not in truncation.part:
        return ""
    share = (at.probability.sel(part="top") / at.clean_probability).mean("seed")
    found = []
    for target in map(str, truncation.target.values):
        kept = share.sel(target=target).values
        enough = [int(rank) for rank, value in zip(share["rank"].values, kept, strict=True) if value >= MOST]
        found.append(f"{target} rank {enough[0]}" if enough else f"{target} more than any rank tried")
    full = int(np.max(at.full_rank))
    return f"To keep {MOST:g} of the probability of its answer with {weight} cut, of {full}: {'; '.join(found)}."


def attention_scores(patterns: xr.Dataset) -> str:
    """The share of every head's attention scores that the linearised QK circuit explains, and its largest part."""
    found = []
    for role in map(str, patterns.role.values):
        parts = patterns.share.sel(role=role).drop_sel(part=["all", "uniform"])
        top = largest(parts)
        whole = spread(patterns.r2.sel(role=role, part="all"), ".2f")
        most = "" if top is None else f", most by {top.place['part'].replace('_', ' × ')} ({spread(top.values, '.2f')})"
        found.append(f"{role} R² {whole}{most}")
    return f"Attention scores explained by the linearised QK circuit: {'; '.join(found)}."
