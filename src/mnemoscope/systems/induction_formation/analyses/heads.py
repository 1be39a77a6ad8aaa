"""Induction heads of the last layer: how strong each is, what each can do alone, and what is lost without it.

- *Strength* of a head of the last layer: its attention from the query to the right label, less that to the other label
  (`induction`). Of a head of the first layer: its attention from labels to the exemplars before them (`previous`).
- *Alone*: all other heads of the last layer are replaced by their mean over the sequences. *Without*: the head itself
  is. Labels are drawn anew for every sequence, so that a mean says nothing of the answer.
- *Additive*: with D(S) the mean logit difference between the two labels when the heads S are kept, the sum over heads
  of D(h) - D(none), as a share of D(all) - D(none). Heads of one layer add to one stream; only the last normalisation
  keeps the share from being 1. It is no evidence of a division of labour.

Strength is attention, and does not show that the label is copied: what a head does alone shows it.
"""

from collections.abc import Collection
from typing import Any

import torch
import xarray as xr
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from mnemoscope import Batch, HookedModel, Named, Site
from mnemoscope.analyses import patterns
from mnemoscope.interventions import Recordings
from mnemoscope.systems.induction_formation.ideal_parts import LABELS, QUERY

STRONG = 0.3
"""Strength from which a head counts as an induction head."""


def head_names(model: HookedModel, layer: int) -> list[str]:
    """L1H0 and so on."""
    return [f"L{layer}H{head}" for head in range(model.cfg.n_heads)]


@torch.no_grad()
def strengths(model: HookedModel, batch: Batch) -> xr.Dataset:
    """`induction` of the heads of the last layer and `previous` of those of the first, over `head` and `first_head`."""
    attention, last = patterns(model, batch).double(), model.cfg.n_layers - 1
    rows, right = torch.arange(len(batch)), batch.latents["label_pos"]
    asked = attention[:, -1, :, QUERY]
    found = asked[rows, :, right] - asked[rows, :, sum(LABELS) - right]
    back = torch.stack([attention[:, 0, :, label, label - 1] for label in LABELS]).mean(0)
    return xr.Dataset(
        {"induction": ("head", found.mean(0).numpy()), "previous": ("first_head", back.mean(0).numpy())},
        coords={"head": head_names(model, last), "first_head": head_names(model, 0)},
        attrs={"unit": "share of attention", "n": len(batch)},
    )


@torch.no_grad()
def heads_alone(model: HookedModel, batch: Batch) -> xr.Dataset:
    """Accuracy, loss and logit difference with some heads of the last layer kept, the others at their mean.

    Heads of the last layer write to one stream and no MLP follows, so that the model runs once for all sets of heads.

    Returns:
        `accuracy`, `loss` (nats) and `difference` (logits) over (kept, head), where `kept` is `alone` or `without`;
        `all_…` and `none_…` for all heads and for none; `additive`.
    """
    last, n = model.cfg.n_layers - 1, model.cfg.n_heads
    source, recordings = Named(name="the sequences", value=batch), Recordings(model)
    readable: Any = model
    z, before = (recordings.of(source, Site(kind=kind, layer=last))[:, QUERY] for kind in ("z", "resid_pre"))

    def keeping(kept: Collection[int]) -> dict[str, float]:
        shown = z.where(torch.tensor([[head in kept] for head in range(n)]), z.mean(0))
        written = einsum(shown, readable.W_O[last], "batch head d, head d d_model -> batch d_model")
        stream = before + written + readable.b_O[last]
        return scores(model(stream[:, None], start_at_layer=last + 1)[:, 0], batch)

    every = range(n)
    sets = {"alone": [{head} for head in every], "without": [{*every} - {head} for head in every]}
    found = {name: [keeping(kept) for kept in each] for name, each in sets.items()}
    whole, none = keeping(every), keeping(())
    added = sum(each["difference"] - none["difference"] for each in found["alone"])
    return xr.Dataset(
        {
            **{
                name: (("kept", "head"), [[each[name] for each in found[kept]] for kept in found])
                for name in ("accuracy", "loss", "difference")
            },
            **{f"all_{name}": value for name, value in whole.items()},
            **{f"none_{name}": value for name, value in none.items()},
            "additive": added / (whole["difference"] - none["difference"]),
        },
        coords={"kept": list(found), "head": head_names(model, last)},
        attrs={"ablation": "mean", "n": len(batch)},
    )


def scores(logits: Float[Tensor, "batch d_vocab"], batch: Batch) -> dict[str, float]:
    """Accuracy, loss, and the logit of the right label less that of the other, at the query."""
    logits, answer = logits.double(), batch.targets[:, QUERY:]
    right = logits.gather(1, answer)[:, 0]
    other = logits.gather(1, batch.latents["other_label"][:, None])[:, 0]
    return {
        "accuracy": float((logits.argmax(-1) == answer[:, 0]).double().mean()),
        "loss": float((logits.logsumexp(-1) - right).mean()),
        "difference": float((right - other).mean()),
    }
