"""Routes of an answer: straight from attention, or from attention through the MLP; fact by fact.

One of two parts is removed from what the logits read at the query: the output of the MLP, or what heads add directly
(the MLP reads them all the same). A fact whose answer is right without the MLP is stored by attention; one that is
right without the direct part is stored by attention and MLP together.

A part is replaced by its mean over all facts, which leaves one guess that is right for a few of them, or by the
activation of another sequence, which argues for another fact. *Shows* what is enough, given the rest of the model as it
is. *Does not show* how a part does it.
"""

from typing import Literal

import numpy as np
import torch
import xarray as xr

from mnemoscope import (
    Edge,
    HookedModel,
    InputError,
    Intervention,
    Mean,
    Named,
    Resample,
    Site,
    Task,
    generator,
    run_with,
)
from mnemoscope.core import in_range, metrics, one_of
from mnemoscope.systems.factual_recall.analyses.stages import facts_task

Removed = Literal["mean", "resample"]
ROUTES = ("both", "attention", "mlp", "neither")
STORES = ("attention", "mlp", "either", "only both", "neither")
"""Places of a fact: one route is enough, each of them is, it takes both, or it is not known."""


@torch.no_grad()
def routes(model: HookedModel, task: Task, *, n_each: int = 8, removed: Removed = "mean", seed: int = 0) -> xr.Dataset:
    """The accuracy of each route alone on each fact, in a model of one layer of heads and an MLP, or heads alone.

    `accuracy` is over (route, subject, relation), from `n_each` sequences of each fact. Route `both` is the model as it
    is, `attention` without the MLP, `mlp` without what heads add to the logits directly, `neither` without either.
    """
    task = facts_task(task)
    one_of("removed", removed, ("mean", "resample"))
    in_range("n_each", n_each, 1, np.inf)
    if model.cfg.n_layers != 1:
        raise InputError(f"routes are those of one layer; the model has {model.cfg.n_layers}")
    batch = task.every_fact(n_each, generator=generator(seed, "routes"))
    direct: list[Site | Edge] = [Edge(writer=Site(kind="z", layer=0, head=head)) for head in range(model.cfg.n_heads)]
    through: list[Site | Edge] = [] if model.cfg.attn_only else [Site(kind="mlp_out", layer=0)]
    taken = {"both": [], "attention": through, "mlp": direct, "neither": [*direct, *through]}
    source = Named(name="all facts", value=batch)
    shape = (n_each, task.n_subjects, task.n_relations)
    right = []
    for route in ROUTES:
        interventions = [_removal(removed, site, source) for site in taken[route]]
        answers = run_with(model, batch, interventions, seed=seed)[:, -1, : task.d_vocab_out]
        right.append(metrics.correct(answers, batch.targets[:, -1]).double().view(shape).mean(0).numpy())
    return xr.Dataset(
        {"accuracy": (("route", "subject", "relation"), np.stack(right))},
        coords={"route": list(ROUTES)},
        attrs={"unit": "share", "removed": removed, "n_each": n_each},
    )


def _removal(kind: Removed, site: Site | Edge, source: Named) -> Intervention:
    return Mean(site=site, source=source) if kind == "mean" else Resample(site=site, source=source)


def stores(found: xr.Dataset, *, enough: float = 0.5) -> xr.DataArray:
    """The share of the facts that each place stores, from `routes`; accuracy `enough` makes a fact answered.

    Over store (`STORES`): facts for which that route alone is enough, either is, both are needed, and those not
    answered at all. The shares add up to one.
    """
    in_range("enough", enough, 0, 1)
    whole, attention, mlp = (found.accuracy.sel(route=route, drop=True) >= enough for route in ROUTES[:3])
    kinds = {
        "attention": attention & ~mlp,
        "mlp": mlp & ~attention,
        "either": attention & mlp,
        "only both": whole & ~attention & ~mlp,
        "neither": ~whole & ~attention & ~mlp,
    }
    shares = [kinds[name].mean(("subject", "relation")) for name in STORES]
    return xr.concat(shares, xr.DataArray(list(STORES), dims="store", name="store")).rename("share")
