"""Facts that are still answered once the learned patterns of attention are replaced.

The rows of the query are replaced in all heads at once. *No noise*: a head's own attention to subject and relation
stays, scaled up to one, and nothing goes to noise. *Mean*: on top of that every fact gets the head's mean over all
facts, so that a head no longer tells subjects or relations apart. *Uniform*: every token gets the same.

*Shows* which part of the patterns the answers rest on: that noise is left out, or that heads choose by fact. *Does not
show* what is done with what they fetch; that is for `routes` and `fact_memories`.
"""

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope import Batch, HookedModel, InputError, Intervention, SetPattern, Site, Task, generator, run_with
from mnemoscope.analyses import layer_attention
from mnemoscope.core import Mechanism, in_range, metrics
from mnemoscope.systems.factual_recall.analyses.stages import facts_task

PATTERNS = ("own", "no noise", "mean", "uniform")
Rows = Float[Tensor, "batch head_index key"]


@torch.no_grad()
def attending(model: HookedModel, task: Task, *, n_each: int = 8, seed: int = 0) -> xr.DataArray:
    """The accuracy of a one-layer model with softmax attention on each fact, with the patterns of all heads replaced.

    It is over (pattern, subject, relation); each fact has `n_each` sequences with places and noise of their own.
    """
    task = facts_task(task)
    in_range("n_each", n_each, 1, np.inf)
    if model.cfg.n_layers != 1:
        raise InputError(f"patterns are replaced in models of one layer; this one has {model.cfg.n_layers}")
    batch = task.every_fact(n_each, generator=generator(seed, "attending"))
    own = layer_attention(model, 0, batch)[:, :, -1]
    shape = (n_each, task.n_subjects, task.n_relations)
    right = []
    for rows in _rows(own, batch).values():
        interventions = [] if rows is None else [_set(head, rows) for head in range(model.cfg.n_heads)]
        answers = run_with(model, batch, interventions, seed=seed)[:, -1, : task.d_vocab_out]
        right.append(metrics.correct(answers, batch.targets[:, -1]).double().view(shape).mean(0).numpy())
    return xr.DataArray(
        np.stack(right),
        dims=("pattern", "subject", "relation"),
        coords={"pattern": list(PATTERNS)},
        name="accuracy",
        attrs={"unit": "share", "n_each": n_each},
    )


def _rows(own: Rows, batch: Batch) -> dict[str, Rows | None]:
    """The attention of the query, by pattern; None: as in the model."""
    where = torch.stack([batch.latents[f"{kind}_pos"] for kind in ("subject", "relation")], -1)
    where = where[:, None].expand(-1, own.shape[1], 2)
    found = own.gather(-1, where)
    shares = found, found.mean(0, keepdim=True).expand_as(found)
    no_noise, mean = (torch.zeros_like(own).scatter(-1, where, each / each.sum(-1, keepdim=True)) for each in shares)
    uniform = torch.full_like(own, 1 / own.shape[-1])
    return dict(zip(PATTERNS, (None, no_noise, mean, uniform), strict=True))


def _set(head: int, rows: Rows) -> Intervention:
    """Sets what the query, the last position, attends to, and nothing else."""

    def pattern(batch: Batch) -> Float[Tensor, "batch query key"]:
        n_pos = batch.inputs.shape[1]
        found = torch.full((len(batch), n_pos, n_pos), torch.nan, dtype=rows.dtype)
        found[:, -1] = rows[:, head]
        return found

    mechanism = Mechanism(name=f"query of head {head}", pattern=pattern)
    return SetPattern(site=Site(kind="pattern", layer=0, head=head), mechanism=mechanism)
