r"""Division of labour: the share of a part's effect that falls to its own head.

A *part* is one piece of a task, such as a skill, a kind of fault, a letter or a value. The effect of a head on a part
is what its mean ablation costs at the places that test the part: the share of right answers, or their log-probability.
With :math:`e(p, h)` the effects above zero, :math:`s(p, h) = e(p, h) / \sum_{h'} e(p, h')` is the share of a head.
A log-probability has no bounds: of two heads that are both needed one may have nearly the whole effect. The share of
right answers has, and is the scale of the double dissociation.

The own head of a part is the one with the largest effect on one half of the prompts. Its share is taken on the other
half, and averaged over the parts:

    share    = mean over p of s(p, own(p))
    random   = mean over p and q of s(p, own(q))       own heads assigned to parts at random, as many parts each
    division = (share - random) / (1 - random)         1: every part has a head; 0: no better than at random

Of two parts and two heads the division is 1 where each part needs a head of its own. It is ½ where one head serves both
parts and the other one of them. It is 0 where one head serves both, or both heads do.
A part whose effects add up to less than `LEAST` needs no head: all have the same share. If `random` is 1, the division
is 0.

*Shows* whether removal costs different parts through different heads. *Does not show* how a head serves its part, and
heads that stand in for each other have small effects on both.
"""

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import torch
import xarray as xr

from mnemoscope.analyses.ablation import ablate
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.guests import Registry
from mnemoscope.core.protocols import ModelLike, resolve_model
from mnemoscope.core.site import Site
from mnemoscope.core.skills import Skills, random_halves
from mnemoscope.models.subjects import Subject

Metric = Literal["accuracy", "log_prob"]
"""Names of the measures in which effects of heads can be taken."""
HALVES = ("own", "tested")
"""Halves of the prompts: the first chooses the own heads, and the second measures their shares."""
LEAST = 0.1
"""Effect of all heads together on a part, in its unit, below which none counts as needed for it."""

PART_EFFECTS: Registry[Callable[..., xr.DataArray]] = Registry("task with parts", "claims")
"""By the name of a task: from a subject and a `metric` to the effects of its heads on the parts of the task, as
`head_effects` gives them."""


@check_arguments
@torch.no_grad()
def head_effects(
    model: ModelLike,
    batch: Batch,
    parts: Skills,
    *,
    heads: list[tuple[int, int]] | None = None,
    reference: Batch | None = None,
    within: str | None = None,
    metric: Metric = "log_prob",
    seed: int = 0,
) -> xr.DataArray:
    """The cost of the mean ablation of each head for each part, on both halves of the prompts.

    Args:
        model: A run, a subject or any hooked model whose vocabulary and context are large enough.
        batch: Sequences that test all parts in both halves.
        parts: For each part the positions that test it.
        heads: (layer, head) of those among which parts may be divided; None: all.
        reference: Sequences that means come from; None: those of `batch`.
        within: Name of a latent: means come from sequences of the same class. None: from all.
        metric: The log-probability of the right answers, or their share (`accuracy`), before minus after.
        seed: Halves are drawn from its stream `halves`.

    Returns:
        Over (half, part, head), in nats or as a share; heads are named L0H1.

    Raises:
        InputError: A part is tested in one half only, or there is no such head.

    >>> effects = ms.analyses.head_effects(model, batch, skills)
    >>> effects.dims, effects["head"].values.tolist()
    (('half', 'part', 'head'), ['L0H0', 'L0H1'])
    """
    model = resolve_model(model, batch=batch)
    one_of("metric", metric, get_args(Metric))
    layers, n_heads = range(model.cfg.n_layers), model.cfg.n_heads
    chosen = [(layer, head) for layer in layers for head in range(n_heads)] if heads is None else heads
    for layer, head in chosen:
        in_range("the layer of a head", layer, 0, len(layers) - 1)
        in_range("a head", head, 0, n_heads - 1)
    targets = {str(site): (site,) for site in (Site(kind="z", layer=layer, head=head) for layer, head in chosen)}
    found = []
    for half, masks in random_halves(batch, parts, seed=seed):
        lost = ablate(
            model, half, skills=masks, reference=batch if reference is None else reference, targets=targets,
            kinds=("mean",), within=within, seed=seed,
        ).sel(kind="mean", drop=True)  # fmt: skip
        found.append((lost[f"clean_{metric}"] - lost[metric]).transpose("skill", "component"))
    effects = xr.concat(found, xr.DataArray(list(HALVES), dims="half", name="half"))
    effects = effects.rename(skill="part", component="head").rename("effect")
    return effects.assign_attrs(unit="nats" if metric == "log_prob" else "accuracy", ablation="mean", n=len(batch))


def subject_division(subject: Subject) -> dict[str, float]:
    """`share`, `random` and `division` of a subject, by accuracy, over the parts of its task in `PART_EFFECTS`.

    >>> found = ms.analyses.subject_division(ms.Subject(model=model, task=task, seed=0))
    >>> sorted(found)
    ['division', 'random', 'share']
    """
    found = division_of_labour(PART_EFFECTS.get(subject.task.name)(subject, metric="accuracy"))
    return {name: float(found[name]) for name in ("share", "random", "division")}


def division_of_labour(effects: xr.DataArray, *, least: float = LEAST) -> xr.Dataset:
    """The share of a part's effect that falls to its own head, against a random assignment of the own heads.

    `effects` lie along `half`, `part` and `head`, as `head_effects` gives them. A part on which all heads together have
    less effect than `least`, or none, needs no head. Raises InputError where a dimension is missing, there are no two
    halves, or fewer than two parts or heads.

    Returns:
        `share`, `random` and `division` as in the description of the module; along `part` the own head `own` and its
        share `own_share`; along `head` the share `parts` of the parts that it owns, and its share `head_share` of the
        effects, mean over parts.

    >>> found = ms.analyses.division_of_labour(ms.analyses.head_effects(model, batch, skills))
    >>> found.own.to_series().to_dict()
    {'elimination': 'L0H0', 'recall': 'L0H0'}
    """
    sizes = {str(name): size for name, size in effects.sizes.items()}
    if set(sizes) != {"half", "part", "head"} or sizes["half"] != 2 or min(sizes["part"], sizes["head"]) < 2:
        raise InputError(f"effects must be over two halves and at least two parts and two heads; got {sizes}")
    chosen, tested = effects.transpose("half", "part", "head").to_numpy()
    own = chosen.argmax(1)
    above = np.maximum(tested, 0)
    total = above.sum(1, keepdims=True)
    needed, even = (total >= least) & (total > 0), np.full_like(above, 1 / above.shape[1])
    shares = np.divide(above, total, out=even, where=needed)
    own_share = shares[np.arange(len(own)), own]
    share, random = float(own_share.mean()), float(shares[:, own].mean())
    owned = np.bincount(own, minlength=above.shape[1]) / len(own)
    return xr.Dataset(
        {
            "share": share,
            "random": random,
            "division": (share - random) / (1 - random) if random < 1 else 0.0,
            "own": ("part", effects["head"].to_numpy()[own]),
            "own_share": ("part", own_share),
            "parts": ("head", owned),
            "head_share": ("head", shares.mean(0)),
        },
        coords={"part": effects["part"].to_numpy(), "head": effects["head"].to_numpy()},
        attrs={"unit": "share of the effect"},
    )
