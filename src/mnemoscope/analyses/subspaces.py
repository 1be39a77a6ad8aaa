r"""The directions in which a latent lies in an activation, for the causal follow-up: erase, steer along and swap.

The part of x inside is P x, with P one of three projections of the rank of the latent:

- `leace`: the one after whose removal no linear classifier with any convex loss does better than a constant (linear
  guardedness: class means are equal), and that changes the activation least in the mean square. With the covariance
  S of x, W = S^(-1/2) and U the projection on the span of W (class means - common mean), P = W^+ U W. Belrose et al.
  2023, "LEACE: perfect linear concept erasure in closed form". It is oblique: it reads the latent where it differs
  most from the rest, and writes along the class means. It needs no iteration as null-space projection does.
- `means`: the orthogonal projection on the span of the class means minus the common mean. The same guarantee, but
  whatever else varies along these directions goes too. As values, with `basis`: `Project` erases and `Patch` swaps.
- `probe`: the orthogonal projection on the span of the coefficients of a fitted probe: what this probe reads, but not
  where the class means differ, so that the latent can still be read from the rest.

For a number the covariance with it takes the place of the class means. The guarantee is about the sequences that the
subspace was found on. Latents that go together share directions.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.analyses.probes import (
    PENALTY,
    RESOLUTION,
    check_latent_values,
    check_site,
    fit_probe,
    latent_mask,
    latent_values,
    permute_sequences,
    probe_directions,
    site_positions,
    site_vectors,
)
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.protocols import ModelLike, resolve_model
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import Site

SubspaceMethod = Literal["leace", "means", "probe"]
SUBSPACE_METHODS: tuple[SubspaceMethod, ...] = get_args(SubspaceMethod)


@dataclass(frozen=True, kw_only=True, eq=False)
class Subspace:
    """Directions of a `site` that go with a `latent`, found by a `method`.

    The `basis` is orthonormal; the parts inside lie in its span. `reading` gives how far x lies along each direction of
    the basis; for orthogonal projections it is the basis itself. `centre` is the mean activation. `classes` are the
    values of the latent and `means` the mean activation of each; none for a number. `shuffled` holds what the same
    procedure gives with the labels permuted among sequences, draw by draw.

    >>> site = ms.Site(kind="resid_post", layer=0, pos=-1)
    >>> ms.analyses.subspace(model, batch, "is_repeat", site=site, n_shuffles=2).basis.shape
    torch.Size([1, 32])
    """

    site: Site
    latent: str
    method: SubspaceMethod
    basis: Float[Tensor, "direction width"]
    reading: Float[Tensor, "direction width"]
    centre: Float[Tensor, " width"]
    classes: Int[Tensor, " class"] | None
    means: Float[Tensor, "class width"] | None
    shuffled: tuple["Subspace", ...] = ()

    def inside(self, vectors: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """The parts of vectors inside the subspace."""
        return vectors @ self.reading.T @ self.basis

    def mean_of(self, batch: Batch) -> Float[Tensor, "batch pos width"]:
        """The mean activation of the class that the latent has; where the site does not lie it means nothing.

        Raises InputError for a number, or a class that the means were not taken of.
        """
        if self.classes is None or self.means is None:
            raise InputError(f"steering needs classes, and {self.latent} is a number; make classes of it")
        values = latent_values(batch, self.latent)
        for value in values[site_positions(self.site, batch)].unique().tolist():
            one_of(f"a class of {self.latent} to steer from or to", value, self.classes.tolist())
        return self.means[torch.searchsorted(self.classes, values.contiguous()).clamp(max=len(self.classes) - 1)]


def subspace(
    model: ModelLike,
    batch: Batch,
    latent: str,
    *,
    site: Site,
    where: str | None = None,
    method: SubspaceMethod = "leace",
    penalty: float = PENALTY,
    n_shuffles: int = 20,
    seed: int = 0,
) -> Subspace:
    """The directions of a latent at a site, from all rows of the site's positions together.

    Test the effect on other sequences than `batch`. The latent is as for `probe`. With the Boolean latent `where` only
    rows where that holds count. `penalty` is that of the probe. The seed's streams permute the labels for each of the
    `n_shuffles`. Raises InputError where a site or latent is not to be probed, the latent takes a single value, or the
    activations do not vary with it at all.

    >>> site = ms.Site(kind="resid_post", layer=0, pos=-1)
    >>> found = ms.analyses.subspace(model, batch, "is_repeat", site=site, n_shuffles=2)
    >>> found.latent, found.basis.shape
    ('is_repeat', torch.Size([1, 32]))
    """
    model = resolve_model(model, batch=batch)
    one_of("method", method, SUBSPACE_METHODS)
    in_range("n_shuffles", n_shuffles, 1, math.inf)
    check_fits(model, batch)
    check_site(model, site)
    values, counting = latent_values(batch, latent), latent_mask(batch, where)
    check_latent_values(latent, values, counting)
    mask = counting & site_positions(site, batch)
    x = site_vectors(model, batch, [site])[0][mask]
    if (n := len(values[mask].unique())) < 2:
        raise InputError(f"latent {latent} must take two values at least at {site}; it takes {n}")

    def found(labels: Tensor) -> Subspace:
        return _fit_subspace(x, labels[mask], site, latent, method, penalty)

    streams = [generator(seed, "shuffled labels", draw) for draw in range(n_shuffles)]
    result = found(values)
    if not len(result.basis):
        raise InputError(f"the activations at {site} do not vary with {latent}; probe it first, or take another site")
    return replace(result, shuffled=tuple(found(permute_sequences(values, mask, stream)) for stream in streams))


def _fit_subspace(
    x: Float[Tensor, "row width"],
    y: Shaped[Tensor, " row"],
    site: Site,
    latent: str,
    method: SubspaceMethod,
    penalty: float,
) -> Subspace:
    classes = None if y.is_floating_point() else y.unique()
    means = None if classes is None else torch.stack([x[y == value].mean(0) for value in classes])
    if method == "probe":
        spanning = probe_directions(fit_probe(x.cpu().numpy(), y.cpu().numpy(), penalty)).to(x)
        floor = RESOLUTION * float(spanning.abs().max())
    else:
        spanning = _covariance(x, y)[None] if means is None else means - x.mean(0)
        floor = RESOLUTION * float(x.abs().max())
    basis, reading = _fit_leace(x, spanning) if method == "leace" else (_orthonormal(spanning, floor),) * 2
    return Subspace(
        site=site,
        latent=latent,
        method=method,
        basis=basis,
        reading=reading,
        centre=x.mean(0),
        classes=classes,
        means=means,
    )


def _orthonormal(spanning: Float[Tensor, "vector width"], floor: float) -> Float[Tensor, "direction width"]:
    _, size, basis = torch.linalg.svd(spanning, full_matrices=False)
    return basis[size > floor]


def _fit_leace(
    x: Float[Tensor, "row width"], spanning: Float[Tensor, "vector width"]
) -> tuple[Float[Tensor, "direction width"], Float[Tensor, "direction width"]]:
    """Basis and reading of LEACE; directions in which the activation does not vary are left out."""
    variance, axes = torch.linalg.eigh((x - x.mean(0)).T @ (x - x.mean(0)) / len(x))
    varies = variance > (RESOLUTION * x.abs().max()).square()
    deviation, axes = variance[varies].sqrt(), axes[:, varies]
    inside = _orthonormal(spanning @ axes / deviation, RESOLUTION)  # in standard deviations along the axes
    orthonormal, triangle = torch.linalg.qr((inside * deviation @ axes.T).T)
    return orthonormal.T, triangle @ (inside / deviation @ axes.T)


def _covariance(x: Float[Tensor, "row width"], y: Float[Tensor, " row"]) -> Float[Tensor, " width"]:
    """With the standardised number, so that it has the activation's unit."""
    centred = y - y.mean()
    return centred @ (x - x.mean(0)) / len(y) / centred.square().mean().sqrt()
