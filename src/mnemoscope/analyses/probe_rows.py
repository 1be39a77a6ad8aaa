"""The rows that probes are fitted and scored on: labels of a batch, and sides that share nothing.

In a causal model sequences that begin alike have equal activations until they part. A probe that is fitted on one of
them and scored on another one only has to remember it: with labels drawn at random for each subject of a prompt it
would be right as often as not. Rows that begin alike, or belong to a group that the caller names, stay on one side.
`with_random_labels` makes such labels, the control of a split. Compare GroupKFold of scikit-learn.
"""

import re
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch, check_is_batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.seeding import generator

LatentValues = Int[Tensor, "batch pos"] | Float[Tensor, "batch pos"]


def with_latent(batch: Batch, name: str, values: Tensor) -> Batch:
    """The same sequences with a further latent, `batch` or `batch pos`; InputError if name or length is wrong.

    >>> labelled = ms.analyses.with_latent(batch, "before", batch.inputs.roll(1, 1))
    >>> "before" in labelled.latents
    True
    """
    check_is_batch(batch)
    if name in batch.latents:
        raise InputError(f"the batch has a latent {name} already; take another name")
    if len(values) != len(batch):
        raise InputError(f"latent {name} must have a value for each of {len(batch)} sequences; got {len(values)}")
    return replace(batch, known={**batch.known, name: values})


def latent_values(batch: Batch, name: str) -> LatentValues:
    """A latent at every position: classes as whole numbers, numbers in float64.

    `y[2]` is the second column of `y`; `token` and `target` are the batch's own, if it is of tokens. Raises InputError
    where there is no such latent, or it has no value per sequence or position.
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


def split_sequences(
    batch: Batch, *, seed: int = 0, groups: str | None = None, at: Bool[Tensor, "batch pos"] | None = None
) -> tuple[Batch, Batch]:
    """Two halves without a sequence in common, drawn from the seed's stream `probe halves`.

    Copies of a sequence go to the same half, and so do rows with the same value of a latent (`groups`), and rows that
    are equal up to a position which is marked in both (`at`). Raises InputError where this leaves one group only.

    >>> [len(half) for half in ms.analyses.split_sequences(batch)]
    [32, 32]
    """
    check_is_batch(batch)
    halves = draw_halves(batch, row_groups(batch, groups=groups, at=at), seed)
    if halves is None:
        what = "sequences" if groups is None and at is None else "groups of sequences"
        raise InputError(f"the batch must hold two different {what} at least; got {min(1, len(batch))}")
    return halves


def draw_halves(batch: Batch, rows: Int[Tensor, " batch"], seed: int) -> tuple[Batch, Batch] | None:
    """Two halves of the groups of its rows, which are numbered from 0; None where there is one group, or none."""
    n = int(rows.max()) + 1 if len(rows) else 0
    if n < 2:
        return None
    first = torch.zeros(n, dtype=torch.bool)
    first[torch.randperm(n, generator=generator(seed, "probe halves"))[: (n + 1) // 2]] = True
    chosen = first[rows.cpu()].to(batch.inputs.device)
    return batch.select(chosen), batch.select(~chosen)


def row_groups(
    batch: Batch, *, groups: str | None = None, at: Bool[Tensor, "batch pos"] | None = None
) -> Int[Tensor, " batch"]:
    """The group of each row, numbered from 0: copies, rows of one value of `groups`, and rows that are equal up to a
    position which is marked in both (`at`).
    """
    same = batch.inputs.unique(dim=0, return_inverse=True)[1]
    links = [(torch.ones_like(same, dtype=torch.bool), same)]
    if groups is not None:
        links.append((links[0][0], latent_values(batch, groups)[:, 0].unique(return_inverse=True)[1]))
    if at is not None:
        marked = [pos for pos in range(at.shape[1]) if at[:, pos].any()]
        links += [(at[:, pos], _beginnings(batch.inputs, pos)) for pos in marked]
    for _ in range(len(same)):
        before = same
        for rows, key in links:
            lowest = torch.full_like(key, len(same)).scatter_reduce(0, key[rows], same[rows], "amin")
            same = torch.where(rows, lowest[key], same)
        if torch.equal(before, same):
            break
    return same.unique(return_inverse=True)[1]


def _beginnings(inputs: Tensor, pos: int) -> Int[Tensor, " batch"]:
    """A number for each different beginning of sequences, up to a position."""
    return inputs[:, : pos + 1].unique(dim=0, return_inverse=True)[1]


def rows_that_begin_alike(
    fit: Batch, test: Batch, fitted: Bool[Tensor, "fit pos"], tested: Bool[Tensor, "test pos"]
) -> Bool[Tensor, "test pos"]:
    """True at tested places whose sequence is equal, up to there, to one that is fitted on at this place."""
    result, both = torch.zeros_like(tested), torch.cat((fit.inputs, test.inputs))
    for pos in range(tested.shape[1]):
        key = _beginnings(both, pos).to(tested.device)
        known = key[: len(fit)][fitted[:, pos]]
        result[:, pos] = tested[:, pos] & torch.isin(key[len(fit) :], known)
    return result


def with_random_labels(batch: Batch, latent: str, name: str, *, groups: str, seed: int = 0) -> Batch:
    """A control of a split: a latent `name` with the values of `latent`, dealt to the values of `groups` at random.

    Every row of a group gets the same value, that of a row of a group drawn from the seed's stream `random labels`. A
    probe of it is right by chance, unless rows of one group are on both sides of the split.

    >>> control = ms.analyses.with_random_labels(batch, "is_repeat", "at random", groups="recalled")
    >>> control.latents["at random"].shape
    torch.Size([64])
    """
    check_is_batch(batch)
    values, group = (
        latent_values(batch, latent)[:, 0],
        latent_values(batch, groups)[:, 0].unique(return_inverse=True)[1],
    )
    drawn = torch.randint(len(batch), (int(group.max()) + 1,), generator=generator(seed, "random labels"))
    return with_latent(batch, name, values[drawn.to(values.device)][group])


def check_disjoint(fit: Batch, test: Batch) -> None:
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


def check_latent_values(latent: str, values: LatentValues, where: Bool[Tensor, "batch pos"]) -> None:
    """Refuse a latent that is NaN or infinite where it counts."""
    if not values[where].isfinite().all():
        raise InputError(f"latent {latent} holds NaN or infinity; leave these rows out with where")


def permute_sequences(values: LatentValues, where: Bool[Tensor, "batch pos"], stream: torch.Generator) -> LatentValues:
    """Every sequence gets the values of another one, at each position among the sequences that count there."""
    result, order = values.clone(), torch.randperm(len(values), generator=stream).to(values.device)
    for pos in range(values.shape[1]):
        rows = order[where[order, pos]]
        result[rows, pos] = values[rows.roll(1), pos]
    return result
