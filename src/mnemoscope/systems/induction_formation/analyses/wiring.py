r"""Wiring: which previous-token heads feed which induction heads, by path patching through keys.

Clean and corrupted sequences differ in the places of the two exemplars. The edges from one head of the first layer to
the keys of all heads of the last carry what they carried in the corrupted sequence. Read is what each reader's score
of the right label, less that of the other label, loses of the difference between the two sequences: scores add up
where attention saturates. Shares below zero count as none, and each counts as much as its reader is strong, if it is an
induction head at all (`heads.STRONG`): :math:`e(p, i)`. The number of heads of the first layer that feed the head i is
effectively
:math:`(\sum_p e)^2 / \sum_p e^2`: 1 where one does it all, and n where n do alike. `n_previous` is its mean over the
heads of the last layer, and `n_induction` that of the number of heads that a head of the first layer feeds, both
weighted by what is carried.

It shows what moves the scores. Whether the answer needs it is another question: heads can stand in for each other.
"""

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope import Batch, Edge, HookedModel, Intervention, Named, Patch, PromptPairs, Site
from mnemoscope.interventions import intervene
from mnemoscope.systems.induction_formation.analyses.heads import STRONG, head_names, strengths
from mnemoscope.systems.induction_formation.ideal_parts import LABELS, QUERY

LEAST = 0.01
"""Score by which a reader has to tell clean from corrupted sequences; else nothing feeds it."""


@torch.no_grad()
def wiring(model: HookedModel, pairs: PromptPairs) -> xr.Dataset:
    """`share` over (first_head, head), of what each reader's scores say, and `n_previous` and `n_induction`.

    The pairs are of the kind `swap_exemplars`. Both numbers are 0 where nothing is carried.
    """
    n, last = model.cfg.n_heads, model.cfg.n_layers - 1
    source = Named(name=pairs.name, value=pairs.corrupted)

    def edges(head: int) -> list[Patch]:
        readers = (Site(kind="z", layer=last, head=reader) for reader in range(n))
        writer = Site(kind="z", layer=0, head=head)
        return [Patch(site=Edge(writer=writer, reader=reader, through="k"), source=source) for reader in readers]

    clean, other = _gap(model, pairs.clean, []), _gap(model, pairs.corrupted, [], answers=pairs.clean)
    lost = torch.stack([clean - _gap(model, pairs.clean, edges(head)) for head in range(n)])
    share = torch.where((clean - other).abs() > LEAST, lost / (clean - other), 0.0).numpy()
    strong = strengths(model, pairs.clean).induction
    carried = share.clip(min=0) * strong.where(strong >= STRONG, 0).values
    return xr.Dataset(
        {
            "share": (("first_head", "head"), share),
            "n_previous": effective_number(carried, axis=0),
            "n_induction": effective_number(carried, axis=1),
        },
        coords={"first_head": head_names(model, 0), "head": head_names(model, last)},
        attrs={"unit": "share of the difference in scores", "pairs": pairs.name, "n": len(pairs)},
    )


def _gap(
    model: HookedModel, batch: Batch, changes: Sequence[Intervention], *, answers: Batch | None = None
) -> Float[Tensor, " head"]:
    """The score of the right label less that of the other, of every head of the last layer, mean over sequences."""
    name = f"blocks.{model.cfg.n_layers - 1}.attn.hook_attn_scores"
    with intervene(model, batch, changes):
        _, cache = model.run_with_cache(batch.inputs, names_filter=lambda each: each == name)
    scores, right = cache[name][:, :, QUERY].double(), (answers or batch).latents["label_pos"]
    rows = torch.arange(len(batch))
    return (scores[rows, :, right] - scores[rows, :, sum(LABELS) - right]).mean(0)


def effective_number(carried: Float[np.ndarray, "first_head head"], *, axis: int) -> float:
    """The effective number of entries along an axis, a mean over the other axis with the sums of entries as weights."""
    total, squares = carried.sum(axis), (carried**2).sum(axis)
    if not total.any():
        return 0.0
    numbers = np.divide(total**2, squares, out=np.zeros_like(total), where=squares > 0)
    return float((numbers * total).sum() / total.sum())
