r"""The fraction of each skill that a layer's top k neurons carry.

On one half of the sequences neurons are ranked by what removing one of them costs: the fall of the skill's mean
log-probability. On the other half the first k are

- kept while the rest of the layer is removed: fraction = (score - none) / (all - none),
- removed while the rest is kept: fraction lost = (all - score) / (all - none),

where `all` is the intact model and `none` the one with the whole layer removed. k random neurons are the comparison.
A fraction of 1 says that the k neurons alone hold what the layer adds to the skill; kept and removed differ where
neurons stand in for each other or work only together.

A fraction lost can exceed 1: half of a mechanism can be worse than none. Where the layer carries too little of a skill
there are no fractions, see `neurons.effects`.

It shows how few neurons a skill depends on, in this model, given the rest of it. It does not show that they store
anything. A ranking by removal one at a time is not the best set of k; a better one may exist.
"""

import math
from collections.abc import Sequence

import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.analyses.ablation import Removal
from mnemoscope.analyses.neurons.effects import CRITERION, METRICS, Bench, bench, measurable, without
from mnemoscope.analyses.neurons.keys_values import mlp_block
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator
from mnemoscope.core.skills import Skills, halves

PARTS = ("kept", "removed")


def neuron_shares(
    model: HookedModel,
    batch: Batch,
    *,
    skills: Skills,
    reference: Batch,
    layer: int = 0,
    kind: Removal = "mean",
    ks: Sequence[int] | None = None,
    n_random: int = 10,
    seed: int = 0,
) -> xr.Dataset:
    """Scores and fractions with the top k neurons of each skill kept, or removed.

    The batch, its weights, `skills` and `reference` are as for `neuron_effects`. Neurons are removed as `kind` says:
    `zero`, `mean` or `resample`. `ks` are kept or removed; none: 0, 1, 2, 4, ... and all. The first k of each of
    `n_random` orders are the comparison. Halves, random orders and resampling come from the seed's streams.

    Returns:
        `score` over (skill, part, k, metric); `random_score` with dimension draw besides; `fraction` and
        `random_fraction` of these, NaN where it is refused; `all`, `none` and `measurable` over (skill, metric);
        `neuron` over (skill, rank), the ranking. Accuracy and log-probability (nats).

    Raises:
        InputError: As `neuron_effects`; or a k is out of range, or a half lacks a skill.
    """
    n = mlp_block(model, layer).mlp.W_out.shape[0]
    ks = [*dict.fromkeys([0, *(2**i for i in range(n.bit_length())), n])] if ks is None else list(ks)
    for k in ks:
        in_range("k", k, 0, n)
    if not ks:
        raise InputError("ks must name at least one number of neurons; got none")
    in_range("n_random", n_random, 1, math.inf)
    chosen, tested = (
        bench(model, part, skills=masks, reference=reference, layer=layer, kind=kind, seed=seed)
        for part, masks in halves(batch, skills, seed=seed)
    )
    cost = -without(chosen, [torch.tensor([neuron]) for neuron in range(n)])["log_prob"]
    ranking = cost.argsort(dim=0, descending=True, stable=True).T
    stream = generator(seed, "random neurons")
    random = torch.stack([torch.randperm(n, generator=stream) for _ in range(n_random)])
    ends = without(tested, [torch.arange(0), torch.arange(n)])
    top = torch.stack([_curve(tested, order, ks)[:, :, i] for i, order in enumerate(ranking)])
    drawn = torch.stack([_curve(tested, order, ks) for order in random], -1).movedim(2, 0)
    whole, none = (torch.stack([ends[name][i] for name in METRICS], -1) for i in (0, 1))
    given = measurable(ends, tested.places)
    dims = ("skill", "part", "k", "metric")
    arrays = {
        "score": (dims, top),
        "random_score": ((*dims, "draw"), drawn),
        "fraction": (dims, _fraction(top, whole, none, given)),
        "random_fraction": (
            (*dims, "draw"),
            _fraction(drawn, whole[..., None], none[..., None], given[..., None]),
        ),
        "all": (("skill", "metric"), whole),
        "none": (("skill", "metric"), none),
        "measurable": (("skill", "metric"), given),
        "neuron": (("skill", "rank"), ranking),
    }
    return xr.Dataset(
        {name: (axes, values.cpu().numpy()) for name, (axes, values) in arrays.items()},
        coords={"skill": list(skills), "part": list(PARTS), "k": ks, "metric": list(METRICS), "rank": range(1, n + 1)},
        attrs={"layer": layer, "kind": kind, "n": len(tested.places.sequence.unique()), "log_prob_unit": "nats"}
        | CRITERION,
    )


def _curve(on: Bench, order: Int[Tensor, " neuron"], ks: Sequence[int]) -> Float[Tensor, "part k skill metric"]:
    """The first k of an order kept, and removed."""
    cells = without(on, [order[k:] for k in ks] + [order[:k] for k in ks])
    return torch.stack([cells[name] for name in METRICS], -1).unflatten(0, (2, len(ks)))


def _fraction(score: Tensor, whole: Tensor, none: Tensor, given: Tensor) -> Tensor:
    """The fraction that `score`, `skill part k metric ...`, is of the others over `skill metric ...`."""
    whole, none, given = (values[:, None, None] for values in (whole, none, given))
    kept, removed = (score[:, :1] - none) / (whole - none), (whole - score[:, 1:]) / (whole - none)
    return torch.cat((kept, removed), 1).where(given, torch.nan)
