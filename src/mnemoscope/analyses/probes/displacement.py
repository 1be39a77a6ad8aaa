"""Forward passes in which something is added to the activation at a site, another vector for every position."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.analyses.probes.activations import check_site, neurons, positions, vectors, weights_of
from mnemoscope.analyses.probes.subspaces import Subspace
from mnemoscope.core.batch import CHUNK, Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import Site
from mnemoscope.interventions.writing import check_written, writing


def activations(model: HookedModel, batch: Batch, subspace: Subspace) -> Float[Tensor, "batch pos width"]:
    """The vectors at the site of a subspace.

    Raises:
        InputError: The model has no such site, holds NaN there, or is too small for the batch or the subspace.
    """
    check_fits(model, batch)
    check_site(model, subspace.site)
    (x,) = vectors(model, batch, [subspace.site])
    if x.shape[-1] != subspace.basis.shape[1]:
        raise InputError(
            f"the subspace is of vectors of {subspace.basis.shape[1]} numbers and {subspace.site} holds {x.shape[-1]}; "
            "take the model that it was found in"
        )
    return x


def turned(
    subspace: Subspace, displacement: Float[Tensor, "batch pos width"], n_random: int, seed: int
) -> list[Float[Tensor, "batch pos width"]]:
    """A displacement inside a subspace, turned into random subspaces: of the same length in every row.

    They are drawn from the seed's stream `random directions`.
    """
    stream, inside = generator(seed, "random directions"), displacement @ subspace.basis.T
    shape = subspace.basis.T.shape
    draws = [torch.randn(shape, generator=stream, dtype=displacement.dtype) for _ in range(n_random)]
    return [inside @ torch.linalg.qr(draw)[0].T.to(displacement) for draw in draws]


@torch.no_grad()
def displaced(
    model: HookedModel, batch: Batch, site: Site, displacement: Float[Tensor, "batch pos width"]
) -> Float[Tensor, "batch pos d_vocab"]:
    """Logits where a vector of its own is added to the activation of every sequence and position of a site."""
    check_written(model, site.kind, [site.layer])
    moved = displacement * positions(site, batch)[..., None]

    def logits(rows: Tensor) -> Tensor:
        def add(activation: Tensor, hook: Any) -> Tensor:
            new = activation.expand(len(rows), *activation.shape[1:]).clone()
            part = moved[rows].to(new)
            if site.head is not None and site.kind != "result":  # that of one head is changed in the sum of the heads
                new[:, :, site.head] += part
            else:
                new[..., slice(None) if site.neuron is None else neurons(site)] += part
            return new

        with writing(model, [(site.hook, add)]) as hooks:
            return model.run_with_hooks(batch.inputs[rows], fwd_hooks=hooks)

    return torch.cat([logits(rows) for rows in torch.arange(len(batch), device=moved.device).split(CHUNK)])


def described(model: HookedModel, subspace: Subspace) -> dict[str, str]:
    """What was changed, for results."""
    return {
        "site": str(subspace.site),
        "latent": subspace.latent,
        "directions": f"{subspace.method}, rank {len(subspace.basis)}",
        "weights": weights_of(model),
    }
