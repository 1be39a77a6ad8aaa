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
subspace was found on. Latents that go together share directions; `given` another latent, class means are taken within
each of its classes, less their mean there. `means` are the singular directions of the class means, the largest singular
value first: `rank` keeps the first of them, and `singular_directions` asks what each number of them does.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.analyses.probe_rows import check_latent_values, latent_mask, latent_values, permute_sequences
from mnemoscope.analyses.probes import (
    PENALTY,
    RESOLUTION,
    check_site,
    fit_probe,
    probe_directions,
    site_positions,
    site_vectors,
)
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.numerics import to_numpy
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
    procedure gives with the labels permuted among sequences, draw by draw. `sizes` are the singular values of all
    directions, those beyond the rank included.

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
    sizes: Float[Tensor, " singular"] | None = None

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
    given: str | None = None,
    method: SubspaceMethod = "leace",
    rank: int | None = None,
    penalty: float = PENALTY,
    n_shuffles: int = 20,
    seed: int = 0,
) -> Subspace:
    """The directions of a latent at a site, from all rows of the site's positions together.

    Test the effect on other sequences than `batch`. The latent is as for `probe`. With the Boolean latent `where`
    only rows where that holds count; `given` another latent, both of classes, only differences within its classes do.
    `rank` is how many directions are kept; none: all. `penalty` is that of the probe. The seed's streams permute the
    labels for each of the `n_shuffles`. Raises InputError where a site or latent is not to be probed, the latent
    takes a single value, or the activations do not vary with it at all.

    >>> site = ms.Site(kind="resid_post", layer=0, pos=-1)
    >>> found = ms.analyses.subspace(model, batch, "is_repeat", site=site, n_shuffles=2)
    >>> found.latent, found.basis.shape
    ('is_repeat', torch.Size([1, 32]))
    """
    model = resolve_model(model, batch=batch)
    one_of("method", method, SUBSPACE_METHODS)
    in_range("n_shuffles", n_shuffles, 1, math.inf)
    in_range("rank", 1 if rank is None else rank, 1, math.inf)
    check_fits(model, batch)
    check_site(model, site)
    values, counting = latent_values(batch, latent), latent_mask(batch, where)
    check_latent_values(latent, values, counting)
    mask = counting & site_positions(site, batch)
    x = site_vectors(model, batch, [site])[0][mask]
    if (n := len(values[mask].unique())) < 2:
        raise InputError(f"latent {latent} must take two values at least at {site}; it takes {n}")

    groups = None if given is None else _classes(batch, given)[mask]
    if given is not None and values.is_floating_point():
        raise InputError(f"given {given}, the latent must have classes, and {latent} is a number; make classes of it")

    def found(labels: Tensor) -> Subspace:
        return _fit_subspace(x, labels[mask], site, latent, method, penalty, groups=groups, rank=rank)

    streams = [generator(seed, "shuffled labels", draw) for draw in range(n_shuffles)]
    result = found(values)
    if not len(result.basis):
        raise InputError(f"the activations at {site} do not vary with {latent}; probe it first, or take another site")
    return replace(result, shuffled=tuple(found(permute_sequences(values, mask, stream)) for stream in streams))


def _classes(batch: Batch, latent: str) -> Int[Tensor, "batch pos"]:
    values = latent_values(batch, latent)
    if values.is_floating_point():
        raise InputError(f"given must be a latent with classes, and {latent} is a number; make classes of it")
    return values


def _fit_subspace(
    x: Float[Tensor, "row width"],
    y: Shaped[Tensor, " row"],
    site: Site,
    latent: str,
    method: SubspaceMethod,
    penalty: float,
    *,
    groups: Int[Tensor, " row"] | None = None,
    rank: int | None = None,
) -> Subspace:
    classes = None if y.is_floating_point() else y.unique()
    means = None if classes is None else torch.stack([x[y == value].mean(0) for value in classes])
    if method == "probe":
        spanning = probe_directions(fit_probe(to_numpy(x), to_numpy(y), penalty)).to(x)
        floor = RESOLUTION * float(spanning.abs().max())
    else:
        if groups is not None:
            spanning = _differences_within(x, y, groups)
        else:
            spanning = _covariance(x, y)[None] if means is None else means - x.mean(0)
        floor = RESOLUTION * float(x.abs().max())
    if method == "leace":
        basis, reading, sizes = _fit_leace(x, spanning, rank)
    else:
        reading, sizes = _orthonormal(spanning, floor, rank)
        basis = reading
    return Subspace(
        site=site,
        latent=latent,
        method=method,
        basis=basis,
        reading=reading,
        centre=x.mean(0),
        classes=classes,
        means=means,
        sizes=sizes,
    )


def _differences_within(
    x: Float[Tensor, "row width"], y: Int[Tensor, " row"], groups: Int[Tensor, " row"]
) -> Float[Tensor, "vector width"]:
    """Class means within each group, less their mean there; a group with one class adds nothing."""
    found = []
    for group in groups.unique():
        rows, labels = x[groups == group], y[groups == group]
        means = torch.stack([rows[labels == value].mean(0) for value in labels.unique()])
        found.append(means - means.mean(0))
    return torch.cat(found)


def _orthonormal(
    spanning: Float[Tensor, "vector width"], floor: float, rank: int | None
) -> tuple[Float[Tensor, "direction width"], Float[Tensor, " singular"]]:
    """The first directions, and the sizes of all."""
    _, size, basis = torch.linalg.svd(spanning, full_matrices=False)
    return basis[size > floor][:rank], size[size > floor]


def _fit_leace(
    x: Float[Tensor, "row width"], spanning: Float[Tensor, "vector width"], rank: int | None
) -> tuple[Float[Tensor, "direction width"], Float[Tensor, "direction width"], Float[Tensor, " singular"]]:
    """Basis, reading and sizes of LEACE; directions in which the activation does not vary are left out."""
    variance, axes = torch.linalg.eigh((x - x.mean(0)).T @ (x - x.mean(0)) / len(x))
    varies = variance > (RESOLUTION * x.abs().max()).square()
    deviation, axes = variance[varies].sqrt(), axes[:, varies]
    inside, sizes = _orthonormal(spanning @ axes / deviation, RESOLUTION, rank)  # in standard deviations along the axes
    orthonormal, triangle = torch.linalg.qr((inside * deviation @ axes.T).T)
    return orthonormal.T, triangle @ (inside / deviation @ axes.T), sizes


def _covariance(x: Float[Tensor, "row width"], y: Float[Tensor, " row"]) -> Float[Tensor, " width"]:
    """With the standardised number, so that it has the activation's unit."""
    centred = y - y.mean()
    return centred @ (x - x.mean(0)) / len(y) / centred.square().mean().sqrt()
