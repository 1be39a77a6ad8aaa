"""The rows of a probe: the vector at every position of every sequence, the latent there, and which sequences count.

Boolean and whole latents are classes, floating ones numbers. "None" written as -1 is a class like any other and NaN is
refused: a Boolean latent `where` says which rows count.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import ATTENTION, BY_HEAD, Site
from mnemoscope.interventions.edges.graph import check_exists
from mnemoscope.interventions.recordings import read, recorded, results
from mnemoscope.interventions.replacements import region

Values = Int[Tensor, "batch pos"] | Float[Tensor, "batch pos"]


def with_latent(batch: Batch, name: str, values: Tensor) -> Batch:
    """The same sequences with a further latent, `batch` or `batch pos`.

    Raises InputError where there is a latent of that name, or no value for every sequence.
    """
    if name in batch.latents:
        raise InputError(f"the batch has a latent {name} already; take another name")
    if len(values) != len(batch):
        raise InputError(f"latent {name} must have a value for each of {len(batch)} sequences; got {len(values)}")
    return replace(batch, known={**batch.known, name: values})


def latent_values(batch: Batch, name: str) -> Values:
    """A latent at every position: classes as whole numbers, numbers in float64.

    `y[2]` is the second column of `y`; `token` and `target` are the batch's own, if it is of tokens. Raises InputError
    where there is no such latent, or it has neither one value per sequence nor one per position.
    """
    family, column = re.fullmatch(r"(.*?)(?:\[(\d+)\])?", name, re.S).groups()  # pyright: ignore[reportOptionalMemberAccess]
    own = {} if batch.has_vectors else {"token": batch.inputs, "target": batch.targets}
    known = {**own, **batch.latents}
    one_of("a latent", family, known)
    values, shape = known[family], tuple(batch.scored.shape)
    if column is not None and values.ndim == 2 and 1 <= int(column) <= values.shape[1]:
        values = values[:, int(column) - 1]
    elif column is not None or values.shape not in (shape[:1], shape):
        columns = f"; name one column, {family}[1] to {family}[{values.shape[1]}]" if values.ndim == 2 else ""
        raise InputError(
            f"latent {name} must have a value per sequence or per position, shape {shape[:1]} or {shape}; it has shape "
            f"{tuple(values.shape)}{columns}"
        )
    values = values.double() if values.is_floating_point() else values.long()
    return values[:, None].expand(shape) if values.ndim == 1 else values


def latent_mask(batch: Batch, name: str | None) -> Bool[Tensor, "batch pos"]:
    """True where a Boolean latent holds; without a name, everywhere. Padding never counts."""
    real = batch.real.to(batch.scored.device)
    if name is None:
        return real.clone()
    if name in batch.latents and batch.latents[name].dtype != torch.bool:
        raise InputError(f"where must name a Boolean latent; {name} is {batch.latents[name].dtype}; compare it first")
    return latent_values(batch, name).bool() & real


def split_sequences(batch: Batch, *, seed: int = 0) -> tuple[Batch, Batch]:
    """Two halves without a sequence in common, drawn from the seed's stream `probe halves`.

    Copies of a sequence go to the same half. Raises InputError where there is one sequence only.
    """
    same = batch.inputs.unique(dim=0, return_inverse=True)[1].cpu()
    n = int(same.max()) + 1 if len(same) else 0
    if n < 2:
        raise InputError(f"the batch must hold two different sequences at least; got {n}")
    first = torch.zeros(n, dtype=torch.bool)
    first[torch.randperm(n, generator=generator(seed, "probe halves"))[: (n + 1) // 2]] = True
    chosen = first[same].to(batch.inputs.device)
    return batch.select(chosen), batch.select(~chosen)


def check_apart(fit: Batch, test: Batch) -> None:
    """Refuse two batches of unequal length, or with a sequence in common."""
    lengths = [batch.inputs.shape[1] for batch in (fit, test)]
    if lengths[0] != lengths[1]:
        raise InputError(f"fit and test must be of one length, since positions are compared; got {lengths}")
    apart = [len(rows.unique(dim=0)) for rows in (fit.inputs, test.inputs, torch.cat((fit.inputs, test.inputs)))]
    if shared := apart[0] + apart[1] - apart[2]:
        raise InputError(
            f"fit and test must have no sequence in common; they share {shared}; give one batch, which is split, or "
            "take test from another split"
        )


def check_numbers(latent: str, values: Values, where: Bool[Tensor, "batch pos"]) -> None:
    """Refuse a latent that is NaN or infinite where it counts."""
    if not values[where].isfinite().all():
        raise InputError(f"latent {latent} holds NaN or infinity; leave these rows out with where")


def permuted(values: Values, where: Bool[Tensor, "batch pos"], stream: torch.Generator) -> Values:
    """Every sequence gets the values of another one, at each position among the sequences that count there."""
    result, order = values.clone(), torch.randperm(len(values), generator=stream).to(values.device)
    for pos in range(values.shape[1]):
        rows = order[where[order, pos]]
        result[rows, pos] = values[rows.roll(1), pos]
    return result


def partners(batch: Batch, latent: str, *, seed: int = 0) -> Int[Tensor, " batch"]:
    """For each sequence another one in which a latent differs, from the seed's stream `partners`.

    `batch.select(partners(...))` with the answers that the exchange should lead to as targets is the other side of
    `PromptPairs`. Raises InputError where there is no such latent, it differs within a sequence, or it has one value
    only.
    """
    values = latent_values(batch, latent).cpu()
    if (values != values[:, :1]).any():
        raise InputError(f"latent {latent} must hold one value per sequence; take another, or make pairs by hand")
    other = values[:, :1] != values[:, 0]
    if not other.any(1).all():
        raise InputError(f"latent {latent} has one value in all sequences; take more sequences or another latent")
    drawn = torch.multinomial(other.double(), 1, generator=generator(seed, "partners", latent))[:, 0]
    return drawn.to(batch.inputs.device)


def check_site(model: HookedModel, site: Site) -> None:
    """Refuse a site that holds no single vector per position: attention weights, or all heads at once."""
    check_exists(model, site)
    if site.kind in ATTENTION:
        raise InputError(
            f"a probe reads one vector per position; {site} holds one number per query and key: take q, k or z"
        )
    if site.kind in BY_HEAD and site.head is None:
        raise InputError(f"a probe reads one vector per position; name a head of {site}, or take attn_out")


def positions(site: Site, batch: Batch) -> Bool[Tensor, "batch pos"]:
    """True at the places of a site in each sequence."""
    mask = region(replace(site, head=None, neuron=None), batch, batch.scored[..., None])
    return mask.flatten(2)[..., 0].expand(batch.scored.shape)


@torch.no_grad()
def vectors(
    model: HookedModel, batch: Batch, sites: Sequence[Site], *, dtype: torch.dtype | None = torch.double
) -> list[Float[Tensor, "batch pos width"]]:
    """The activations at some sites, at all positions, one forward pass per chunk; refuses NaN and infinite ones.

    Without `dtype` they have the model's own numbers.
    """
    found = recorded(model, batch, {read(site) for site in sites})
    result = [_chosen(model, site, found[read(site)]) for site in sites]
    result = [x if dtype is None else x.to(dtype) for x in result]
    for site, activation in zip(sites, result, strict=True):
        if not activation.isfinite().all():
            raise InputError(f"the activations at {site} hold NaN or infinity; check the model's weights")
    return result


def weights_of(model: HookedModel) -> str:
    """The processing of a model's weights, for results."""
    return "LayerNorm folded" if str(model.cfg.normalization_type).endswith("Pre") else "unprocessed"


def _chosen(model: HookedModel, site: Site, activation: Tensor) -> Tensor:
    if site.kind == "result" and site.layer is not None:
        activation = results(model, site.layer, activation)
    if site.head is not None:
        return activation[:, :, site.head]
    return activation if site.neuron is None else activation[..., neurons(site)]


def neurons(site: Site) -> list[int]:
    """The neurons that a site names."""
    return list(site.neuron) if isinstance(site.neuron, tuple) else [site.neuron]  # pyright: ignore[reportReturnType]
