r"""Directions by singular value, and what each number of them does: a causal check of "it lies on two directions".

Directions come with their singular values, the largest first: those of the class means of a latent (`subspace` with the
method `means`), or those in which a head writes tokens (`head_directions`: right singular vectors of W_E W_V W_O). For
the first r of them, with c, x and p the metric on the clean prompt, on the other, and with parts exchanged:

- `share`, that of the squared singular values;
- `swapped`, (c - p) / (c - x) with only the parts along the r directions taken from the other prompt;
- `rest`, the same with everything but these parts taken from there;
- `followed`, how often the answer of the other prompt wins when the r parts are swapped;
- `random`, as `swapped`, with displacements of the same length in random directions.

The latent lies on r directions, and nowhere else at this site, if `swapped` is near 1 and `rest` near 0. A large share
alone shows where class means differ, not that the model reads it. Neither shows that no other site carries the latent.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
import xarray as xr

from mnemoscope.analyses.edits import FOIL, edit
from mnemoscope.analyses.head_circuits import circuit_factors
from mnemoscope.analyses.head_weights import check_indices, effective_weights
from mnemoscope.analyses.probes import site_positions, site_vectors
from mnemoscope.analyses.subspaces import Subspace
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.metrics import LOGIT_DIFF
from mnemoscope.core.numerics import factored_svd
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import ModelLike, resolve_model
from mnemoscope.core.site import Site


@torch.no_grad()
def head_directions(
    model: ModelLike, batch: Batch, *, layer: int, head: int, tokens: Sequence[int] | None = None
) -> Subspace:
    """The directions in which a head writes what it reads from token embeddings, less what all tokens share.

    LayerNorm is folded in and sigma left out. The batch gives the mean output of the head. `tokens` restricts the
    vocabulary. Raises InputError where there is no such layer, head or token, or the head writes the same for all.

    >>> found = ms.analyses.head_directions(model, batch, layer=0, head=1)
    >>> found.basis.shape[0] == len(found.sizes)
    True
    """
    model = resolve_model(model, batch=batch)
    in_range("layer", layer, 0, model.cfg.n_layers - 1)
    in_range("head", head, 0, model.cfg.n_heads - 1)
    weights = effective_weights(model, [layer])
    chosen = check_indices("tokens", tokens, len(weights.W_E))
    value, output = circuit_factors(weights, "OV", 0, None, centred=False)
    read = weights.W_E[chosen] @ value[head]
    _, size, basis = factored_svd(read - read.mean(0), output[head])
    kept = size > 1e-9 * max(float(size[0]), 1e-30)
    if not kept.any() or not float(size[0]):
        raise InputError(f"L{layer}H{head} writes the same for all tokens; take another head")
    site = Site(kind="result", layer=layer, head=head)
    (x,) = site_vectors(model, batch, [site])
    centre = x[site_positions(site, batch)].mean(0)
    directions = basis.mT[kept].to(centre) if basis.shape[0] == centre.shape[-1] else basis[kept].to(centre)
    return Subspace(
        site=site, latent="token", method="means", basis=directions, reading=directions, centre=centre, classes=None,
        means=None, sizes=size[kept].to(centre),
    )  # fmt: skip


def direction_effects(
    model: ModelLike,
    pairs: PromptPairs,
    subspace: Subspace,
    *,
    ranks: Sequence[int] | None = None,
    n_random: int = 5,
    seed: int = 0,
) -> xr.Dataset:
    """What the first r directions of a subspace do to the logit difference of pairs, for some numbers r (None: all).

    Targets of the corrupted side are the answers that swapping should lead to. Raises InputError where directions have
    no order (the method `leace`), there are not that many, or `edit` refuses the subspace.

    Returns:
        Over `rank`: `share`, `swapped`, `rest`, `followed` and `random`, as the module defines them.

    >>> site = ms.Site(kind="resid_post", layer=0, pos=-1)
    >>> found = ms.analyses.subspace(model, batch, "unused", site=site, method="means", n_shuffles=1)
    >>> ms.analyses.direction_effects(model, pairs, found, ranks=(1, 2)).swapped.dims
    ('rank',)
    """
    model, basis = resolve_model(model), subspace.basis
    if subspace.sizes is None or not torch.equal(basis, subspace.reading):
        raise InputError(
            f"subspace must have directions in an order, by singular value; got the method {subspace.method}: take "
            "method='means' or head_directions"
        )
    ranks = range(1, len(basis) + 1) if ranks is None else ranks
    whole = torch.linalg.qr(basis.T, mode="complete")[0].T  # the directions, up to sign, and then the rest
    total, rows = subspace.sizes.square().sum(), []
    for rank in ranks:
        in_range("a rank", rank, 1, len(basis))
        first = replace(subspace, basis=basis[:rank], reading=basis[:rank], shuffled=())
        parts = {"swapped": first, "rest": replace(first, basis=whole[rank:], reading=whole[rank:])}
        found = {
            name: edit(
                model, pairs, part, edits=("swap",), metrics=(LOGIT_DIFF, FOIL), n_random=n_random, seed=seed
            ).isel(direction=0, edit=0)
            for name, part in parts.items()
            if len(part.basis)
        }
        means = {name: each.mean("prompt") for name, each in found.items()}
        swapped = means["swapped"].sel(metric="logit_diff")
        between = float(swapped.clean - swapped.corrupted)
        row = {
            name: (float(each.clean.sel(metric="logit_diff")) - float(each.value.sel(metric="logit_diff"))) / between
            for name, each in means.items()
        }
        row["share"] = float(subspace.sizes[:rank].square().sum() / total)
        row["followed"] = float(means["swapped"].value.sel(metric=FOIL.name))
        row["random"] = float((swapped.clean - swapped.random.mean("draw")) / between)
        rows.append({"rest": 0.0, **row})
    names = ("share", "swapped", "rest", "followed", "random")
    return xr.Dataset(
        {name: ("rank", [row[name] for row in rows]) for name in names},
        coords={"rank": list(ranks)},
        attrs={
            "unit": "share of the difference in logits; followed: share of the prompts",
            "site": str(subspace.site), "latent": subspace.latent, "pairs": pairs.name, "n": len(pairs),
        },
    )  # fmt: skip
