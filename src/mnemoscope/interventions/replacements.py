"""The new value of an activation under an intervention, before the site's region is cut out of it."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.intervention import Add, AtSite, Knockout, Mean, Patch, Project, Resample, Scale, SetPattern, Zero
from mnemoscope.core.mechanism import checked_pattern
from mnemoscope.core.named import Named
from mnemoscope.core.seeding import generator
from mnemoscope.interventions.recordings import Recordings

Change = Callable[[Tensor], Tensor]
"""From the activation of the batch to the new one; the result broadcasts to it."""


def change(intervention: AtSite, batch: Batch, recordings: Recordings, seed: int) -> Change:
    """What an intervention does to the activation of a batch.

    Args:
        intervention: Not at a weight.
        batch: The sequences that the model runs on.
        recordings: Of that model.
        seed: Resampling draws from this seed's stream `resample`.

    Raises:
        InputError: The source does not fit the batch.
    """
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
        case SetPattern(mechanism=mechanism):
            pattern = checked_pattern(mechanism, batch)[:, None]
            return lambda old: torch.where(pattern.isnan(), old, pattern.to(old))
        case Mean() | Resample() | Patch():
            new = _recorded(intervention, batch, recordings, seed)
            return lambda old: new.to(old)


def _recorded(intervention: Mean | Resample | Patch, batch: Batch, recordings: Recordings, seed: int) -> Tensor:
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
    activation = recordings.of(source, intervention.site)
    match intervention:
        case Patch():
            return activation
        case Resample(match=match):
            return activation[_draw(source, batch, match, seed).to(activation.device)]
        case Mean(over=over):
            return _mean(activation, source.value, batch, over)


def _mean(activation: Tensor, source: Batch, batch: Batch, over: str) -> Tensor:
    weights = torch.ones(len(source)) if source.weights is None else source.weights
    weights = weights.to(activation)
    if over in ("batch", "position"):
        mean = torch.einsum("b,b...->...", weights / weights.sum(), activation)
        return mean.mean(0, keepdim=True) if over == "position" else mean
    share = (_class(source, over)[None] == _class(batch, over)[:, None]).to(activation) * weights
    total = share.sum(1, keepdim=True)
    if (total == 0).any():
        lacking = int(_class(batch, over)[(total == 0)[:, 0].cpu()][0])
        raise InputError(f"the source has no sequence with {over} = {lacking}; take a larger one or another latent")
    return torch.einsum("nb,b...->n...", share / total, activation)


def _draw(source: Named[Batch], batch: Batch, match: str | None, seed: int) -> Int[Tensor, " batch"]:
    """A row of the source for each row of the batch."""
    stream = generator(seed, "resample", source.digest, match or "")
    if match is None:
        return torch.randint(len(source.value), (len(batch),), generator=stream)
    same = _class(source.value, match)[None] == _class(batch, match)[:, None]
    if not same.any(1).all():
        lacking = int(_class(batch, match)[~same.any(1)][0])
        raise InputError(f"{source.name} has no sequence with {match} = {lacking}; take a larger one or match nothing")
    return torch.multinomial(same.double(), 1, generator=stream)[:, 0]


def _class(batch: Batch, latent: str) -> Int[Tensor, " batch"]:
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
    basis = _width(intervention.basis, old)
    left, size, _ = torch.linalg.svd(basis.double().T, full_matrices=False)
    span = left[:, size > size.max() * 1e-9].to(old)
    inside = old @ span @ span.T
    return inside if intervention.part == "keep" else old - inside
