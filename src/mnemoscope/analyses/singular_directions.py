r"""Directions by singular value and the effect of each number of them: a causal check of "it lies on two directions".

Directions come with their singular values, the largest first: those of the class means of a latent (`subspace` with the
method `means`), or those in which a head writes tokens (`head_directions`: right singular vectors of W_E W_V W_O). For
the first r of them, with c, x and p the metric on the clean prompt, on the other, and with parts exchanged:

- `share`, that of the squared singular values;
- `swapped`, (c - p) / (c - x) with only the parts along the r directions taken from the other prompt;
- `rest`, the same with everything but these parts taken from there;
- `followed`, how often the answer of the other prompt wins when the r parts are swapped;
- `random`, as `swapped`, with as many random directions.

The latent lies on r directions, and nowhere else at this site, if `swapped` is near 1 and `rest` near 0. A large share
alone shows where class means differ, not that the model reads it. Neither shows that no other site carries the latent.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.head_circuits import circuit_factors
from mnemoscope.analyses.head_weights import check_indices, effective_weights
from mnemoscope.analyses.probes import site_positions, site_vectors
from mnemoscope.analyses.subspaces import Subspace
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch, Named
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.intervention import Patch
from mnemoscope.core.metrics import is_correct, logit_difference
from mnemoscope.core.numerics import factored_svd
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import Site
from mnemoscope.interventions.measurement import weight_processing
from mnemoscope.interventions.recordings import Recordings
from mnemoscope.interventions.run import run_with


@check_arguments
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
    directions = basis.mT[kept].to(centre)
    return Subspace(
        site=site, latent="token", method="means", basis=directions, reading=directions, centre=centre, classes=None,
        means=None, sizes=size[kept].to(centre),
    )  # fmt: skip


@check_arguments
@torch.no_grad()
def direction_effects(
    model: ModelLike,
    pairs: PromptPairs,
    subspace: Subspace,
    *,
    ranks: Sequence[int] | None = None,
    n_random: int = 5,
    seed: int = 0,
) -> xr.Dataset:
    """Effects of the first r directions of a subspace on the logit difference of pairs, for some numbers r (None: all).

    Targets of the corrupted side are the answers that swapping should lead to. The `n_random` random subspaces come
    from the seed's stream `random directions`. Raises InputError where directions have no order (the method `leace`),
    there are not that many, or the subspace does not fit the model.

    Returns:
        Over `rank`: `share`, `swapped`, `rest` and `followed`, as the module defines them, and `random` over (rank,
        draw).

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
    in_range("n_random", n_random, 0, math.inf)
    ranks = range(1, len(basis) + 1) if ranks is None else ranks
    for rank in ranks:
        in_range("a rank", rank, 1, len(basis))
    swaps = _Swaps(model, pairs, subspace.site)
    whole = torch.linalg.qr(basis.T, mode="complete")[0].T  # the directions, up to sign, and then the rest
    stream, total = generator(seed, "random directions"), subspace.sizes.square().sum()
    found: dict[str, list[Any]] = {name: [] for name in ("share", "swapped", "rest", "followed", "random")}
    for rank in ranks:
        swapped, followed = swaps.along(basis[:rank])
        draws = (
            torch.randn(basis.shape[1], rank, generator=stream, dtype=torch.float32).to(basis) for _ in range(n_random)
        )
        for name, value in (
            ("share", float(subspace.sizes[:rank].square().sum() / total)),
            ("swapped", swapped),
            ("followed", followed),
            ("rest", swaps.along(whole[rank:])[0] if rank < len(whole) else 0.0),
            ("random", [swaps.along(torch.linalg.qr(draw)[0].T)[0] for draw in draws]),
        ):
            found[name].append(value)
    random = np.array(found.pop("random")).reshape(len(ranks), n_random)
    return xr.Dataset(
        {**{name: ("rank", values) for name, values in found.items()}, "random": (("rank", "draw"), random)},
        coords={"rank": list(ranks)},
        attrs={
            "unit": "share of the difference in logits; followed: share of the prompts", "site": str(subspace.site),
            "latent": subspace.latent, "pairs": pairs.name, "n": len(pairs), "weights": weight_processing(model),
        },
    )  # fmt: skip


class _Swaps:
    """Runs of the clean prompts with parts of an activation taken from the other prompts."""

    def __init__(self, model: HookedModel, pairs: PromptPairs, site: Site) -> None:
        self._model, self._pairs, self._site = model, pairs, site
        self._source, self._recordings = Named(name=pairs.name, value=pairs.corrupted), Recordings(model)
        self._clean, self._corrupted = (self._read(side, [])[0] for side in (pairs.clean, pairs.corrupted))

    def along(self, directions: Float[Tensor, "direction width"]) -> tuple[float, float]:
        """The share of the difference that goes with these directions, and how often the other answer wins."""
        basis = Named(name="directions", value=directions)
        patch = Patch(site=self._site, source=self._source, basis=basis)
        value, followed = self._read(self._pairs.clean, [patch])
        return (self._clean - value) / (self._clean - self._corrupted), followed

    def _read(self, batch: Batch, changes: list[Patch]) -> tuple[float, float]:
        scored = self._pairs.scored
        logits = run_with(self._model, batch, changes, recordings=self._recordings)[scored].double()
        answer, foil = (side[scored].to(logits.device) for side in (self._pairs.answer, self._pairs.foil))
        return float(logit_difference(logits, answer, foil).mean()), float(is_correct(logits, foil).double().mean())
