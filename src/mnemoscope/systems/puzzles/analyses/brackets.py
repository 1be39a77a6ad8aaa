"""Measurements on models that tell balanced brackets: what heads cost which fault, and the path of a wrong total.

`score` is the logit of `unbalanced` minus that of `balanced`, at START.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope import (
    Batch,
    HookedModel,
    InputError,
    Intervention,
    Named,
    Patch,
    Site,
    Subject,
    Task,
    ablate,
    generator,
    run_with,
)
from mnemoscope.core import Replacement, memoize, one_of
from mnemoscope.systems.puzzles.tasks.brackets import CLOSE, KINDS, OPEN, Brackets

N_SEQUENCES = 256
"""Sequences of each kind."""
FAULTS = ("total", "negative")
BOTH_HEADS = "both heads"
Reference = Literal["balanced", "all sequences"]


def brackets_task(task: Task) -> Brackets:
    """The task, if it is that of brackets; else an `InputError`."""
    if not isinstance(task, Brackets):
        raise InputError(f"this measures models of {Brackets.name}; got a model of {task.name}")
    return task


def of_kind(subject: Subject, *kinds: str, n: int = N_SEQUENCES, pairs: Tensor | None = None) -> Batch:
    """`n` fresh sequences of each kind, kind by kind, with so many `pairs` or as the task has it."""
    numbers = torch.tensor([KINDS.index(kind) for kind in kinds]).repeat_interleave(n)
    return brackets_task(subject.task).of_kinds(
        numbers, pairs=pairs, generator=generator(subject.seed, "brackets", *kinds)
    )


def scores(model: HookedModel, batch: Batch, interventions: Sequence[Intervention] = ()) -> Float[Tensor, " batch"]:
    """Logit of `unbalanced` minus that of `balanced`, at START."""
    logits = run_with(model, batch, interventions)[:, 0].double()
    return logits[:, 0] - logits[:, 1]


@memoize
def accuracies(subject: Subject) -> Mapping[str, float]:
    """Share of right answers by kind."""
    batch = of_kind(subject, *KINDS)
    right = ((scores(subject.model, batch) > 0) == (batch.targets[:, 0] == 0)).double()
    return dict(zip(KINDS, right.view(len(KINDS), -1).mean(1).tolist(), strict=True))


# ---- faults


def fault_costs(
    subject: Subject, *, layer: int = -1, kind: Replacement = "mean", reference: Reference = "balanced"
) -> xr.DataArray:
    """Accuracy lost on either fault with a head of a layer removed, or all of them, over (component, skill).

    `reference`: means and resampled activations come from balanced sequences, which report no fault, or from sequences
    as the task has them, of which half report one.
    """
    one_of("reference", reference, get_args(Reference))
    task, batch = brackets_task(subject.task), of_kind(subject, *FAULTS)
    layer = layer % subject.model.cfg.n_layers
    heads = [Site(kind="z", layer=layer, head=head) for head in range(subject.model.cfg.n_heads)]
    if reference == "balanced":
        source = of_kind(subject, "balanced", n=2 * N_SEQUENCES)
    else:
        source = task.sample(2 * N_SEQUENCES, split="test", generator=generator(subject.seed, "reference"))
    skills = task.skills(batch)
    without = ablate(
        subject.model,
        batch,
        skills={fault: skills[fault] for fault in FAULTS},
        reference=source,
        targets={str(head): (head,) for head in heads} | {BOTH_HEADS: heads},
        kinds=(kind,),
        seed=subject.seed,
    ).sel(kind=kind, drop=True)
    return (without.clean_accuracy - without.accuracy).transpose("component", "skill")


# ---- the path of a wrong total


@torch.no_grad()
def _activation(model: HookedModel, batch: Batch, site: Site) -> Tensor:
    return model.run_with_cache(batch.inputs, names_filter=site.hook)[1][site.hook]


def suffix_attention(subject: Subject) -> xr.DataArray:
    """Evenness of attention over the suffix, over head of layer 0.

    From each bracket, 1 minus the total-variation distance of the pattern to the uniform one over all places from there
    to END; mean over the brackets of balanced sequences.
    """
    batch = of_kind(subject, "balanced")
    pattern = _activation(subject.model, batch, Site(kind="pattern", layer=0)).double()
    ahead = batch.real[:, None] & torch.ones(pattern.shape[-2:], dtype=torch.bool).triu()
    even = ahead / ahead.sum(-1, keepdim=True).clamp(min=1)
    distance = (pattern - even[:, None]).abs().sum(-1) / 2
    bracket = (batch.inputs == OPEN) | (batch.inputs == CLOSE)
    mean = (1 - distance).transpose(1, 2)[bracket].mean(0)
    return xr.DataArray(mean.numpy(), dims="head", coords={"head": list(range(len(mean)))})


@torch.no_grad()
def bracket_cosine(subject: Subject, head: int) -> float:
    """The cosine of what `(` and `)` write through a head of layer 0, means over their places, without the bias."""
    batch = of_kind(subject, "balanced")
    values = _activation(subject.model, batch, Site(kind="v", layer=0)).double()[:, :, head]
    attention = subject.model.blocks[0].attn
    values = (values - attention.b_V[head].double()) @ attention.W_O[head].double()
    opened, closed = (values[batch.inputs == token].mean(0) for token in (OPEN, CLOSE))
    return float(torch.nn.functional.cosine_similarity(opened, closed, dim=0).nan_to_num())


def yes_or_no(subject: Subject, site: Site) -> float:
    """The share of variance by which a wrong total is yes or no at a site, whatever the total, from 0 to 1.

    The activation at position 1 is projected on the difference of means of right and wrong totals. Of the variance
    between the groups of equal totals it is the share that lies between right and wrong.
    """
    batch = of_kind(subject, "balanced", "total", "both")
    total = batch.latents["total"]
    at = _activation(subject.model, batch, site)[:, 1].double()
    wrong = total != 0
    projected = at @ (at[wrong].mean(0) - at[~wrong].mean(0))
    by_total, by_fault = (_variance_between(projected, groups) for groups in (total, wrong.long()))
    return float(by_fault / by_total) if by_total > 0 else 0.0


def _variance_between(values: Float[Tensor, " batch"], groups: Tensor) -> float:
    number = groups.unique(return_inverse=True)[1]
    counts = number.bincount().double()
    means = torch.zeros_like(counts).index_add_(0, number, values) / counts
    return float(((means - values.mean()).square() * counts).sum() / len(values))


def moved_shares(subject: Subject, fault: str = "total") -> dict[int, float]:
    """Share of a fault that comes across with position 0 or 1 of the residual stream before the last layer.

    Sequences with this fault alone are the source, balanced ones of the same lengths the target: (score patched - score
    balanced) / (score unbalanced - score balanced), means over sequences. 0 where the two scores are less than 1 apart.
    """
    one_of("fault", fault, FAULTS)
    model, clean = subject.model, of_kind(subject, "balanced")
    other = of_kind(subject, fault, pairs=(clean.known_lengths - 2) // 2)
    source = Named(name=f"{fault} alone", value=other)
    before, after = (float(scores(model, batch).mean()) for batch in (clean, other))
    if after - before < 1:
        return {0: 0.0, 1: 0.0}
    shares = {}
    for pos in (0, 1):
        site = Site(kind="resid_pre", layer=model.cfg.n_layers - 1, pos=pos)
        patched = float(scores(model, clean, [Patch(site=site, source=source)]).mean())
        shares[pos] = (patched - before) / (after - before)
    return shares
