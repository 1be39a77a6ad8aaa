"""The cost of removing parts of a model for each skill, on sequences over unseen mappings.

`ablate` measures each skill on the sequences that test it, so that a mean within a class of `is_repeat` is a mean over
sequences of one kind. Only that class is specific to permutation lookup: any task with skills whose sequences can be
enumerated will do.

It shows that a part is needed for a skill, given the rest of the model as it is. It does not show what the part
computes, and a part that another one can stand in for looks unneeded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import torch
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from mnemoscope import HookedModel, Site, Subject, ablate, generator
from mnemoscope.analyses import RemovalKind, every_sequence
from mnemoscope.core import in_range, one_of

Within = Literal["is_repeat", "all sequences"]
Loss = Literal["accuracy", "log_prob"]


def all_heads(model: HookedModel) -> tuple[Site, ...]:
    """The output z of every head, to be removed together."""
    return tuple(Site(kind="z", layer=n, head=h) for n in range(model.cfg.n_layers) for h in range(model.cfg.n_heads))


def all_mlps(model: HookedModel) -> tuple[Site, ...]:
    """The output of every MLP, to be removed together; nothing for a model without."""
    return () if model.cfg.attn_only else tuple(Site(kind="mlp_out", layer=n) for n in range(model.cfg.n_layers))


def skills_without(
    subject: Subject,
    targets: Mapping[str, Sequence[Site]],
    *,
    kind: RemovalKind = "mean",
    within: Within = "is_repeat",
    skills: Sequence[str] | None = None,
    n: int = 2880,
    draw: int = 0,
) -> xr.Dataset:
    """Skills with one target removed at a time, as `ablate`, over (component, skill).

    A target is a name with the sites that are removed together; without sites nothing is removed. Means and resampled
    activations come from sequences that test the same skill (`is_repeat`), or from `all sequences`: for a mean each
    counts with its probability under the task, for a resampling all count alike.

    The seed of the subject and the number of the `draw` give `n` sequences per skill over unseen mappings; where there
    are fewer, all are taken, as for elimination with five values.
    """
    one_of("within", within, get_args(Within))
    in_range("n", n, 1, float("inf"))
    batch = every_sequence(subject.task)
    tested = subject.task.skills(batch)
    results = []
    for skill in tested if skills is None else skills:
        one_of("a skill", skill, tested)
        rows = _drawn(tested[skill].any(1).nonzero()[:, 0], n, subject.seed, skill, draw)
        kept = replace(batch.select(rows), weights=None)
        result = ablate(
            subject.model,
            kept,
            skills={skill: tested[skill][rows]},
            reference=kept if within == "is_repeat" else batch,
            targets=targets,
            kinds=(kind,),
            seed=subject.seed,
        )
        results.append(result.sel(kind=kind, drop=True))
    whole = xr.concat(results, "skill", combine_attrs="drop_conflicts")
    return whole.transpose("component", "skill").assign_attrs(within=within, n=n)


def _drawn(rows: Int[Tensor, " all"], n: int, seed: int, skill: str, draw: int) -> Int[Tensor, " chosen"]:
    if len(rows) <= n:
        return rows
    stream = ("removal costs", skill, *([draw] if draw else []))
    return rows[torch.randperm(len(rows), generator=generator(seed, *stream))[:n]]


def ablation_effect(without: xr.Dataset, *, metric: Loss = "accuracy") -> xr.DataArray:
    """The cost of a removal over (component, skill), between -1 and 1: accuracy before minus after.

    With `log_prob` it is the geometric mean of the answer's probability, before minus after.
    """
    one_of("metric", metric, get_args(Loss))
    if metric == "accuracy":
        cost = without.clean_accuracy - without.accuracy
    else:
        cost = np.exp(without.clean_log_prob) - np.exp(without.log_prob)
    return cost.transpose("component", "skill")
