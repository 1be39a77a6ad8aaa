"""Interventions at a site, an edge or a weight, as values: frozen, printable, comparable.

They compose: a list of them is in force together, those at one place in the order of the list. On an edge the output of
the writer is changed for the reader alone.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from mnemoscope.core.batch import Batch, Named
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.patterns import Mechanism
from mnemoscope.core.site import ATTENTION, Edge, ParamSite, Site

Replacement = Literal["zero", "mean", "resample"]
"""The replacements of an ablation."""
REPLACEMENTS: tuple[Replacement, ...] = get_args(Replacement)
"""The removals that every site allows."""
RemovalKind = Literal[Replacement, "knockout"]
"""The ablations: a replacement of the activation, or `knockout`, by which a query does not see a key."""
REMOVALS: tuple[RemovalKind, ...] = get_args(RemovalKind)


@dataclass(frozen=True, kw_only=True)
class Zero:
    """Zeros. At `z` the effect depends on where biases are kept; at `pattern` the weight is lost, not spread.

    >>> removed = ms.Zero(site=ms.Site(kind="mlp_out", layer=0))
    >>> ms.run_with(model, batch, [removed]).shape
    torch.Size([64, 9, 6])
    """

    site: Site | Edge | ParamSite

    def __str__(self) -> str:
        return f"zero {self.site}"


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The mean over the sequences of a reference set, weighted by their probabilities where it has them.

    Attributes:
        source: The reference set.
        over: `batch`: over sequences, position by position; `position`: over sequences and positions; or the name of
            a latent: over the sequences of the same class, position by position.

    >>> other = ms.Named(name="test", value=batch)
    >>> removed = ms.Mean(site=ms.Site(kind="z", layer=0, head=1), source=other)
    >>> ms.run_with(model, batch, [removed]).shape
    torch.Size([64, 9, 6])
    """

    site: Site | Edge
    source: Named[Batch]
    over: str = "batch"

    def __post_init__(self) -> None:
        if self.over == "position" and isinstance(self.site, Site) and self.site.kind in ATTENTION:
            raise InputError(
                f"{self.site} has other keys at every position: take its mean over='batch' or within a latent"
            )

    def __str__(self) -> str:
        return f"{self.site} := mean over {self.over} of {self.source}"


@dataclass(frozen=True, kw_only=True)
class Resample:
    """The activation in another sequence of a reference set, drawn at random.

    All sites that are resampled from one source in one run take the same sequence.

    Attributes:
        source: The reference set.
        match: Name of a latent: draw among the sequences of the same class; none: among all.

    >>> other = ms.Named(name="test", value=batch)
    >>> removed = ms.Resample(site=ms.Site(kind="mlp_out", layer=0), source=other)
    >>> ms.run_with(model, batch, [removed], seed=1).shape
    torch.Size([64, 9, 6])
    """

    site: Site | Edge
    source: Named[Batch]
    match: str | None = None

    def __str__(self) -> str:
        return f"{self.site} := resampled from {self.source}" + (f" of equal {self.match}" if self.match else "")


@dataclass(frozen=True, kw_only=True)
class Patch:
    """The activation in the same row of another batch: activation patching, or an interchange intervention.

    Attributes:
        source: The other batch.
        at: Where in the source: a position, or the name of a latent of the source that holds one a sequence (below
            0: that sequence stays as it is). None: the positions of the site itself.
        basis: Directions that span a subspace, a row each, of the site's width: only the part inside it is taken from
            the source, the part outside stays. None: all of it.

    >>> source = ms.Named(name="corrupted", value=pairs.corrupted)
    >>> patched = ms.Patch(site=ms.Site(kind="resid_pre", layer=0, pos=-1), source=source)
    >>> ms.run_with(model, pairs.clean, [patched]).shape
    torch.Size([18, 9, 6])
    """

    site: Site | Edge
    source: Named[Batch]
    at: int | str | None = None
    basis: Named[Tensor] | None = None

    def __post_init__(self) -> None:
        if self.at is not None and isinstance(self.site, Site) and self.site.kind in ATTENTION:
            raise InputError(f"at is a position; {self.site} has a query and a key in its place")
        if self.basis is not None:
            _vectors(self.site, "a Patch inside a subspace")
            _rows(self.basis)
            if isinstance(self.site, Site) and self.site.neuron is not None:
                raise InputError(f"a subspace is of all neurons; leave neuron out of {self.site}")

    def __str__(self) -> str:
        inside = f" inside {self.basis}" if self.basis else ""
        return f"{self.site}{inside} := {self.source}" + (f" at pos {self.at}" if self.at is not None else "")


@dataclass(frozen=True, kw_only=True)
class SetPattern:
    """The attention that a mechanism says; rows about which it says nothing stay.

    >>> even = ms.SetPattern(site=ms.Site(kind="pattern", layer=0, head=0), mechanism=ms.core.patterns.uniform())
    >>> ms.run_with(model, batch, [even]).shape
    torch.Size([64, 9, 6])
    """

    site: Site
    mechanism: Mechanism

    def __post_init__(self) -> None:
        if self.site.kind != "pattern":
            raise InputError(f"SetPattern needs a site of kind pattern; got {self.site}")

    def __str__(self) -> str:
        return f"{self.site} := {self.mechanism.name}"


@dataclass(frozen=True, kw_only=True)
class Knockout:
    """Attention scores of minus infinity: the softmax spreads the weight over the other keys.

    The attention knockout of Geva et al. (2023). A query that is left without any key attends to nothing.

    >>> hidden = ms.Knockout(site=ms.Site(kind="scores", layer=0, head=1, pos=-1, key=0))
    >>> ms.run_with(model, batch, [hidden]).shape
    torch.Size([64, 9, 6])
    """

    site: Site

    def __post_init__(self) -> None:
        if self.site.kind != "scores":
            raise InputError(f"Knockout needs a site of kind scores; got {self.site}")

    def __str__(self) -> str:
        return f"knock out {self.site}"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Multiplied by a factor; 1 changes nothing.

    >>> halved = ms.Scale(site=ms.Site(kind="z", layer=0, head=0), factor=0.5)
    >>> ms.run_with(model, batch, [halved]).shape
    torch.Size([64, 9, 6])
    """

    site: Site | Edge | ParamSite
    factor: float

    def __str__(self) -> str:
        return f"{self.site} times {self.factor:g}"


@dataclass(frozen=True, kw_only=True)
class Add:
    """A direction added: steering.

    Attributes:
        direction: A vector of the site's width: d_model, d_head, or as many as there are neurons.

    >>> step = ms.Named(name="a direction", value=model.unembed.W_U[:, 3])
    >>> steered = ms.Add(site=ms.Site(kind="resid_post", layer=0, pos=-1), direction=step, coefficient=4.0)
    >>> ms.run_with(model, batch, [steered])[0, -1].argmax().item()
    5
    """

    site: Site | Edge
    direction: Named[Tensor]
    coefficient: float = 1.0

    def __post_init__(self) -> None:
        _vectors(self.site, "Add")
        if self.direction.value.ndim != 1:
            raise InputError(f"direction must be a vector; got shape {tuple(self.direction.value.shape)}")

    def __str__(self) -> str:
        return f"{self.site} plus {self.coefficient:g} {self.direction}"


@dataclass(frozen=True, kw_only=True)
class Project:
    """Only the part inside a subspace, or only the part outside it.

    Attributes:
        basis: Directions that span the subspace, a row each, of the site's width; they need not be orthogonal.
        part: `keep` the part inside, or `remove` it.

    >>> basis = ms.Named(name="first two", value=torch.eye(model.cfg.d_model)[:2])
    >>> part = ms.Project(site=ms.Site(kind="resid_post", layer=0), basis=basis, part="remove")
    >>> ms.run_with(model, batch, [part]).shape
    torch.Size([64, 9, 6])
    """

    site: Site | Edge
    basis: Named[Tensor]
    part: Literal["keep", "remove"]

    def __post_init__(self) -> None:
        _vectors(self.site, "Project")
        one_of("part", self.part, ("keep", "remove"))
        _rows(self.basis)

    def __str__(self) -> str:
        return f"{self.part} {self.basis} in {self.site}"


@dataclass(frozen=True, kw_only=True)
class LowRank:
    """A weight matrix without part of its singular values.

    Attributes:
        site: The weight; without a head, the matrix of every head for itself.
        rank: How many of the largest singular values the cut is after.
        part: `top`: keep those; `rest`: keep the others.

    >>> cut = ms.LowRank(site=ms.ParamSite(name="W_in", layer=0), rank=4)
    >>> ms.run_with(model, batch, [cut]).shape
    torch.Size([64, 9, 6])
    """

    site: ParamSite
    rank: int
    part: Literal["top", "rest"] = "top"

    def __post_init__(self) -> None:
        in_range("rank", self.rank, 0, float("inf"))
        one_of("part", self.part, ("top", "rest"))
        if not self.site.is_matrix:
            raise InputError(f"LowRank needs a matrix; {self.site} is a bias")

    def __str__(self) -> str:
        return f"{self.site} := {self.part} of rank {self.rank}"


AtSite = Zero | Mean | Resample | Patch | SetPattern | Knockout | Scale | Add | Project
Intervention = AtSite | LowRank
"""Any change at a place of a model."""


def make_removal(kind: RemovalKind, site: Site, source: Named[Batch], within: str | None = None) -> AtSite:
    """The intervention that removes what a site says about the sequence at hand.

    `knockout` is for sites of kind scores. Means and resampled activations come from `source`; with `within`, the name
    of a latent, from its sequences of the same class.

    >>> source = ms.Named(name="reference", value=batch)
    >>> type(ms.analyses.make_removal("mean", ms.Site(kind="z", layer=0), source)).__name__
    'Mean'
    """
    match kind:
        case "zero":
            return Zero(site=site)
        case "mean":
            return Mean(site=site, source=source, over=within or "batch")
        case "resample":
            return Resample(site=site, source=source, match=within)
        case "knockout":
            return Knockout(site=site)


def _rows(basis: Named[Tensor]) -> None:
    if basis.value.ndim != 2:
        raise InputError(f"basis must be (direction, width); got shape {tuple(basis.value.shape)}")


def _vectors(site: Site | Edge, who: str) -> None:
    if isinstance(site, Site) and site.kind in ATTENTION:
        raise InputError(f"{who} needs a site that holds vectors; {site} holds one number a query and key")
