"""The new value of an activation under an intervention, and the mask of the entries that a site selects."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch, Named
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.intervention import Add, AtSite, Knockout, Mean, Patch, Project, Resample, Scale, SetPattern, Zero
from mnemoscope.core.patterns import checked_pattern
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import ATTENTION, BY_HEAD, Position, Site
from mnemoscope.interventions.recordings import Recordings


def region(site: Site, batch: Batch, activation: Tensor) -> Bool[Tensor, "..."]:
    """A mask of the entries that the site selects, which broadcasts to the activation of a batch.

    Only the sizes of `activation` count: `batch pos ...`, or `batch head_index query key`. Raises InputError where a
    position lies outside the sequences, or the batch has no latent of that name.
    """
    if site.kind in ATTENTION:
        both = zip((site.pos, site.key), activation.shape[-2:], strict=True)
        queries, keys = (_positions(wanted, batch, n, site) for wanted, n in both)
        mask, axis = queries[:, None, :, None] & keys[:, None, None], 1
    else:
        mask = _positions(site.pos, batch, activation.shape[1], site)
        mask = mask[:, :, None, None] if site.kind in BY_HEAD else mask[:, :, None]
        axis = 2
    mask = mask.to(activation.device)
    chosen = as_tuple(site.neuron if site.head is None else site.head)
    if not chosen:
        return mask
    along = torch.zeros(activation.shape[axis], dtype=torch.bool, device=activation.device)
    along[list(chosen)] = True
    return mask & along.view(-1, *(1,) * (activation.ndim - axis - 1))


def position_mask(wanted: Position, batch: Batch) -> Bool[Tensor, "rows pos"]:
    """A mask of positions, with one row if it is the same for all sequences; errors as for `region`."""
    site = Site(kind="resid_pre", layer=0, pos=wanted)
    return region(site, batch, batch.inputs[..., None])[..., 0]


def as_tuple(numbers: int | tuple[int, ...] | None) -> tuple[int, ...]:
    """Numbers as a tuple; None gives an empty one."""
    return numbers if isinstance(numbers, tuple) else () if numbers is None else (numbers,)


def _positions(wanted: Position | None, batch: Batch, n_pos: int, site: Site) -> Bool[Tensor, "rows pos"]:
    """A mask of positions, with one row if it is the same for all sequences."""
    if isinstance(wanted, str) and wanted in batch.positions:
        wanted = batch.positions.index(wanted)
    if isinstance(wanted, str):
        return _latent_positions(wanted, batch, n_pos, site)
    mask = torch.full((1, n_pos), wanted is None)
    for pos in as_tuple(wanted):
        in_range(f"a position of site {site}", pos, -n_pos, n_pos - 1)
        mask[0, pos] = True
    return mask


def _latent_positions(name: str, batch: Batch, n_pos: int, site: Site) -> Bool[Tensor, "batch pos"]:
    known = (*batch.positions, *batch.latents)
    one_of(f"the name or the latent that gives the position of site {site}", name, known)
    latent = batch.latents[name]
    if latent.dtype == torch.bool and latent.shape == (len(batch), n_pos):
        return latent
    if latent.shape != (len(batch),) or latent.dtype.is_floating_point or latent.dtype == torch.bool:
        raise InputError(
            f"latent {name} must hold one position a sequence or a mask (batch, pos) to be the position of site "
            f"{site}; it has shape {tuple(latent.shape)} and type {latent.dtype}"
        )
    in_range(f"latent {name} as a position", int(latent.max()), -n_pos, n_pos - 1)
    return latent[:, None] == torch.arange(n_pos, device=latent.device)


Replacer = Callable[[Tensor], Tensor]
"""From the activation of the batch to the new one; the result broadcasts to it."""


def make_replacer(
    intervention: AtSite, batch: Batch, recordings: Recordings, seed: int, *, rows: slice | None = None
) -> Replacer:
    """The change that an intervention makes to the activation of a batch.

    `rows` are the sequences that the model runs on at the moment; they draw the same values whether others run or not.
    Resampling draws from the stream `resample` of `seed`. Raises InputError where the source does not fit the batch.
    """
    match intervention:
        case SetPattern(mechanism=mechanism):
            pattern = checked_pattern(mechanism, batch if rows is None else batch.select(rows))
            return lambda old: with_pattern(old, pattern)
        case Patch():
            new, stays = _patch_values(intervention, _recorded(intervention, batch, recordings, seed, rows), rows)
            return lambda old: _exchanged(intervention.basis, old, torch.where(stays.to(old.device), old, new.to(old)))
        case Mean() | Resample():
            new = _recorded(intervention, batch, recordings, seed, rows)
            return lambda old: new.to(old)
        case _:
            return make_own_replacer(intervention)


def make_own_replacer(intervention: Zero | Knockout | Scale | Add | Project) -> Replacer:
    """The change that an intervention makes whatever the batch is."""
    match intervention:
        case Zero():
            return torch.zeros_like
        case Knockout():
            return lambda old: torch.full_like(old, -torch.inf)
        case Scale(factor=factor):
            return lambda old: old * factor
        case Add(direction=direction, coefficient=coefficient):
            return lambda old: old + coefficient * _width(direction, old)
        case Project():
            return lambda old: _projected(intervention, old)


def with_pattern(old: Tensor, pattern: Float[Tensor, "rows query key"]) -> Tensor:
    """Attention of all heads by a pattern; rows of NaN stay as they are."""
    new = pattern[:, None]
    return torch.where(new.isnan(), old, new.to(old))


def _recorded(
    intervention: Mean | Resample | Patch, batch: Batch, recordings: Recordings, seed: int, rows: slice | None
) -> Tensor:
    source = intervention.source
    if source.value.inputs.shape[1] != batch.inputs.shape[1]:
        lengths = f"{source.value.inputs.shape[1]} and {batch.inputs.shape[1]} tokens"
        raise InputError(
            f"{source.name} and the batch must be of one length, since positions are compared; got {lengths}"
        )
    if isinstance(intervention, Patch) and len(source.value) != len(batch):
        raise InputError(
            f"{source.name} must have a row for each of the {len(batch)} of the batch; got {len(source.value)}"
        )
    if len(source.value) == 0:
        raise InputError(f"{source.name} holds no sequence; {intervention} needs some")
    assert isinstance(intervention.site, Site)  # of an edge what its writer writes
    activation, rows = recordings.of(source, intervention.site), slice(None) if rows is None else rows
    match intervention:
        case Patch():
            return activation[rows]
        case Resample(match=match):
            return activation[_draw(source, batch, match, seed)[rows].to(activation.device)]
        case Mean(over=over):
            axis = 2 if intervention.site.kind in ATTENTION else 1  # positions, or queries
            return _mean(activation.movedim(axis, 1), source.value, batch.select(rows), over).movedim(1, axis)


def _mean(
    activation: Float[Tensor, "batch pos ..."], source: Batch, batch: Batch, over: str
) -> Float[Tensor, "rows #pos ..."]:
    """The mean over a source without its padding; zero at a position that no sequence reaches."""
    weights = (torch.ones(len(source)) if source.weights is None else source.weights).to(activation)
    rows = weights[None] if over in ("batch", "position") else _class_weights(source, batch, over, weights)
    if not source.ragged:
        mean = torch.einsum("nb,b...->n...", rows / rows.sum(1, keepdim=True), activation)
        return mean.mean(1, keepdim=True) if over == "position" else mean
    share = torch.einsum("nb,bp->nbp", rows, source.real.to(activation))
    total = share.sum((1, 2) if over == "position" else 1, keepdim=True)
    mean = torch.einsum("nbp,bp...->np...", share / total.clamp(min=1e-30), activation)
    return mean.sum(1, keepdim=True) if over == "position" else mean


def _class_weights(
    source: Batch, batch: Batch, over: str, weights: Float[Tensor, " source"]
) -> Float[Tensor, "batch source"]:
    """For each row of the batch, the weights of the source's rows of the same class; zero for all others."""
    share = (_class_labels(source, over)[None] == _class_labels(batch, over)[:, None]).to(weights) * weights
    lacking = share.sum(1) == 0
    if lacking.any():
        number = int(_class_labels(batch, over)[lacking.cpu()][0])
        raise InputError(f"the source has no sequence with {over} = {number}; take a larger one or another latent")
    return share


def _draw(source: Named[Batch], batch: Batch, match: str | None, seed: int) -> Int[Tensor, " batch"]:
    """A row of the source for each row of the batch."""
    stream = generator(seed, "resample", source.digest, match or "")
    if match is None and not source.value.ragged:
        return torch.randint(len(source.value), (len(batch),), generator=stream)
    reaches = source.value.known_lengths.cpu()[None] >= batch.known_lengths.cpu()[:, None]
    same = (
        reaches if match is None else _class_labels(source.value, match)[None] == _class_labels(batch, match)[:, None]
    )
    if not same.any(1).all():
        lacking = f"{match} = {int(_class_labels(batch, match)[~same.any(1)][0])}" if match else "as many tokens"
        raise InputError(f"{source.name} has no sequence with {lacking}; take a larger one or match nothing")
    same = same & reaches
    if not same.any(1).all():
        raise InputError(f"{source.name} has no sequence of that class with as many tokens; take a larger one")
    return torch.multinomial(same.double(), 1, generator=stream)[:, 0]


def _class_labels(batch: Batch, latent: str) -> Int[Tensor, " batch"]:
    one_of("the latent that classes are of", latent, batch.latents)
    values = batch.latents[latent].cpu()
    if values.shape != (len(batch),):
        raise InputError(f"latent {latent} must hold one number a sequence; it has shape {tuple(values.shape)}")
    return values.long()


def _width(direction: Named[Tensor], old: Tensor) -> Float[Tensor, "... width"]:
    value = direction.value
    if value.shape[-1] != old.shape[-1]:
        raise InputError(f"{direction.name} must be as wide as the site, {old.shape[-1]}; got {value.shape[-1]}")
    return value.to(old)


def _projected(intervention: Project, old: Tensor) -> Tensor:
    inside = _inside(intervention.basis, old)
    return inside if intervention.part == "keep" else old - inside


def _exchanged(basis: Named[Tensor] | None, old: Tensor, new: Tensor) -> Tensor:
    return new if basis is None else old + _inside(basis, new - old)


def _inside(basis: Named[Tensor], vectors: Float[Tensor, "... width"]) -> Float[Tensor, "... width"]:
    """The part inside the span of the basis; it has a gradient with respect to linearly independent directions."""
    rows = _width(basis, vectors)
    back = torch.linalg.pinv(rows.double(), rtol=1e-9).to(vectors)
    return vectors @ back @ rows


def _patch_values(patch: Patch, activation: Tensor, rows: slice | None) -> tuple[Tensor, Bool[Tensor, "rows ..."]]:
    """The values that a patch writes, from the activation on its source, and a mask of where it writes nothing."""
    if patch.at is None:
        return activation, torch.zeros((1,) * activation.ndim, dtype=torch.bool)
    n_pos = activation.shape[1]
    pos = _source_positions(patch.at, patch.source, n_pos).to(activation.device)
    pos = pos if rows is None else pos[rows]
    at_place = activation[torch.arange(len(pos), device=pos.device), pos.clamp(min=0)][:, None]
    return at_place, (pos < 0).view(-1, *(1,) * (activation.ndim - 1))


def _source_positions(at: int | str, source: Named[Batch], n_pos: int) -> Int[Tensor, " batch"]:
    """A position for every row of the source; below 0 means none."""
    if isinstance(at, int):
        in_range(f"at, a position in {source.name}", at, -n_pos, n_pos - 1)
        return torch.full((len(source.value),), at % n_pos)
    pos = _class_labels(source.value, at)
    in_range(f"latent {at} as a position", int(pos.max()), -n_pos, n_pos - 1)
    return pos
