"""Measurements on models that tell palindromes: who looks where, what is written, and what each head is needed for.

Two heads have roles. The *comparer* is the head of layer 0 that looks, from places of the second half, at the mirror
image of an equal value and at itself where the values differ. The *reporter* is the head of layer 1 that looks, from
END, at places of broken pairs. Each is chosen on one half of the sequences, and measured on the other.

`score` is the logit difference of the right and the wrong class; a *share lost* is 1 - score after / score before, its
mean over sequences with broken pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope import (
    Add,
    Batch,
    Edge,
    HookedModel,
    InputError,
    Intervention,
    Mean,
    Named,
    Patch,
    Site,
    Subject,
    Task,
    generator,
    run_with,
)
from mnemoscope.core import memoize
from mnemoscope.systems.puzzles.tasks.palindrome import Palindrome

N_SEQUENCES = 1024
LEAST_SCORE = 0.5
"""Mean logit difference of the right class from which a share of it is measured."""
Through = Literal["q", "k", "v"]
N_PER_PLACE = 100
"""Sequences that are broken at one pair only, by pair."""


def palindrome_task(task: Task) -> Palindrome:
    """The task, if it is that of palindromes; else an `InputError`."""
    if not isinstance(task, Palindrome):
        raise InputError(f"this measures models of {Palindrome.name}; got a model of {task.name}")
    return task


def sequences(subject: Subject, name: str = "sequences", n: int = N_SEQUENCES) -> Batch:
    """Fresh sequences of the task, from the stream `name` of the subject's seed."""
    return palindrome_task(subject.task).sample(n, split="test", generator=generator(subject.seed, name))


def broken_sequences(subject: Subject, n: int = N_PER_PLACE) -> Batch:
    """`n` sequences for each pair that are broken there and nowhere else, pair by pair."""
    task = palindrome_task(subject.task)
    parts = [task.broken_only(n, pair, generator=generator(subject.seed, "broken", pair)) for pair in range(task.half)]
    first, second = (torch.cat([task.pairs(part)[side] for part in parts]) for side in (0, 1))
    return task.batch(first, second)


def scores(model: HookedModel, batch: Batch, interventions: Sequence[Intervention] = ()) -> Float[Tensor, " batch"]:
    """Logit of the right class minus that of the other, at END."""
    logits = run_with(model, batch, interventions)[:, -1].double()
    return (logits[:, 1] - logits[:, 0]) * (2 * batch.targets[:, -1] - 1)


def accuracies(subject: Subject) -> dict[str, float]:
    """Share of right answers of either class (`palindrome`, `broken`)."""
    batch = sequences(subject, "accuracies")
    right = (scores(subject.model, batch) > 0)[:, None].double()
    skills = palindrome_task(subject.task).skills(batch)
    return {name: float(right[mask.any(1)].mean()) for name, mask in skills.items()}


# ---- where heads look


@torch.no_grad()
def _pattern(model: HookedModel, batch: Batch, layer: int) -> Float[Tensor, "batch head query key"]:
    hook = Site(kind="pattern", layer=layer).hook
    return model.run_with_cache(batch.inputs, names_filter=hook)[1][hook]


@memoize
def comparing(subject: Subject, *, half: int | None = None) -> xr.Dataset:
    """Attention of heads of layer 0 from the places of the second half, over (head, pair).

    `mirror_if_equal` and `self_if_equal` where the two values are equal, `mirror_if_not` and `self_if_not` where they
    are not. `half`: on the sequences of the first or the second half only; none: on all.
    """
    task, batch = palindrome_task(subject.task), _half(sequences(subject), half)
    pattern, mirrored = _pattern(subject.model, batch, 0), batch.latents["mirrored"]
    found = {}
    for pair in range(task.half):
        place = task.second_place(pair)
        for name, rows in (("equal", mirrored[:, pair]), ("not", ~mirrored[:, pair])):
            for what, key in (("mirror", pair + 1), ("self", place)):
                mean = pattern[rows, :, place, key].double().mean(0)
                found.setdefault(f"{what}_if_{name}", []).append(mean)
    return xr.Dataset(
        {name: (("head", "pair"), torch.stack(columns, 1).numpy()) for name, columns in found.items()},
        coords={"head": list(range(pattern.shape[1])), "pair": list(range(task.half))},
        attrs={"unit": "share of attention", "n": len(batch)},
    )


def compared(found: xr.Dataset, least: float = 0.5) -> xr.DataArray:
    """True for every head and pair that the head compares.

    Where the values are equal it looks at the mirror image more than at itself. Where they are not it is the other way
    round. Both times more than `least` of its attention is on the two.
    """
    of_equal, of_not = found.mirror_if_equal + found.self_if_equal, found.mirror_if_not + found.self_if_not
    decides = (found.mirror_if_equal > found.self_if_equal) & (found.self_if_not > found.mirror_if_not)
    return decides & (of_equal > least) & (of_not > least)


@memoize
def reporting(subject: Subject, *, half: int | None = None) -> xr.DataArray:
    """Attention of every head of layer 1 from END on places of broken pairs in the second half, over head.

    Mean over sequences that are broken somewhere.
    """
    task, batch = palindrome_task(subject.task), _half(sequences(subject), half)
    batch = batch.select(batch.latents["n_broken"] > 0)
    places = [task.second_place(pair) for pair in range(task.half)]
    weights = _pattern(subject.model, batch, 1)[:, :, -1, places] * ~batch.latents["mirrored"][:, None]
    mean = weights.sum(-1).double().mean(0)
    return xr.DataArray(mean.numpy(), dims="head", coords={"head": list(range(len(mean)))})


def _half(batch: Batch, half: int | None) -> Batch:
    return batch if half is None else batch.select(slice(half, None, 2))


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The numbers of the comparer, in layer 0, and of the reporter, in layer 1."""

    comparer: int
    reporter: int

    def others(self, model: HookedModel) -> list[Site]:
        """The outputs of the other heads."""
        heads = [Site(kind="z", layer=n, head=h) for n in range(2) for h in range(model.cfg.n_heads)]
        own = (Site(kind="z", layer=0, head=self.comparer), Site(kind="z", layer=1, head=self.reporter))
        return [site for site in heads if site not in own]


def roles(subject: Subject) -> Roles:
    """The heads with roles, chosen on the first half of the sequences.

    The comparer compares the most pairs; among equals it has the most attention where it should be.
    """
    found = comparing(subject, half=0)
    least = xr.where(found.mirror_if_equal < found.self_if_not, found.mirror_if_equal, found.self_if_not)
    rank = compared(found).sum("pair") + least.mean("pair")
    return Roles(comparer=int(rank.values.argmax()), reporter=int(reporting(subject, half=0).values.argmax()))


# ---- what the reporter reads


def read_by_reporter(subject: Subject) -> dict[str, float]:
    """Shares lost where the reporter reads something else than the comparer wrote.

    `keys`, `values` and `queries`: through this input it reads what the comparer wrote in the mended sequence, a
    palindrome. `tokens`: through keys and values it reads what the comparer would write in a sequence with other values
    and the same broken pairs. 0 for a model with a mean score below `LEAST_SCORE`, which has nothing to lose.
    """
    task, model, heads = palindrome_task(subject.task), subject.model, roles(subject)
    batch = _half(sequences(subject), 1)
    batch = batch.select(batch.latents["n_broken"] > 0)
    sources = {
        kind: Named(name=kind, value=task.corrupt(batch, kind=kind, generator=generator(subject.seed, kind)))
        for kind in ("change_answer", "rename_values")
    }
    writer = Site(kind="z", layer=0, head=heads.comparer)
    reader = Site(kind="z", layer=1, head=heads.reporter)

    def lost(kind: str, *through: Through) -> float:
        edges = [Edge(writer=writer, reader=reader, through=each) for each in through]
        patches = [Patch(site=edge, source=sources[kind]) for edge in edges]
        return float(1 - scores(model, batch, patches).mean() / before) if before > LEAST_SCORE else 0.0

    before = float(scores(model, batch).mean())
    return {
        "keys": lost("change_answer", "k"),
        "values": lost("change_answer", "v"),
        "queries": lost("change_answer", "q"),
        "tokens": lost("rename_values", "k", "v"),
    }


# ---- directions


@memoize
def difference_vectors(subject: Subject) -> Float[Tensor, "pair d_model"]:
    """The residual stream after layer 0 at each place of the second half: mean where the pair is broken minus mirrored.

    Sequences are those of the task, so that broken pairs are as good as independent of one another.
    """
    task, batch = palindrome_task(subject.task), sequences(subject, "directions", 2 * N_SEQUENCES)
    hook = Site(kind="resid_post", layer=0).hook
    with torch.no_grad():
        stream = subject.model.run_with_cache(batch.inputs, names_filter=hook)[1][hook].double()
    broken = ~batch.latents["mirrored"]
    rows = []
    for pair in range(task.half):
        there = stream[:, task.second_place(pair)]
        rows.append(there[broken[:, pair]].mean(0) - there[~broken[:, pair]].mean(0))
    return torch.stack(rows)


def direction_cosines(subject: Subject) -> xr.DataArray:
    """The cosine of every two difference vectors, over (pair, other_pair)."""
    vectors = torch.nn.functional.normalize(difference_vectors(subject), dim=-1)
    pairs = list(range(len(vectors)))
    return xr.DataArray(
        (vectors @ vectors.T).numpy(), dims=("pair", "other_pair"), coords={"pair": pairs, "other_pair": pairs}
    )


def common_direction_flips(subject: Subject, n: int = N_PER_PLACE) -> xr.DataArray:
    """Share of palindromes that are called broken once the others' difference vector is added at one place, over pair.

    At the place of a pair the mean of the difference vectors of the other nine pairs is added to the residual stream
    after layer 0.
    """
    task, vectors = palindrome_task(subject.task), difference_vectors(subject)
    batch = sequences(subject, "flips", 4 * n)
    batch = batch.select(batch.targets[:, -1] == 1).select(slice(n))
    shares = []
    for pair in range(task.half):
        others = vectors[torch.arange(task.half) != pair].mean(0).float()
        site = Site(kind="resid_post", layer=0, pos=task.second_place(pair))
        step = Add(site=site, direction=Named(name=f"the others' of pair {pair}", value=others))
        shares.append(float((scores(subject.model, batch, [step]) < 0).double().mean()))
    return xr.DataArray(shares, dims="pair", coords={"pair": list(range(task.half))})


# ---- places


def called_palindrome(subject: Subject, interventions: Sequence[Intervention] = ()) -> xr.DataArray:
    """Share of the sequences broken at one pair only that are called palindromes, over pair."""
    batch = broken_sequences(subject)
    wrong = (scores(subject.model, batch, interventions) < 0).double()
    shares = wrong.view(palindrome_task(subject.task).half, -1).mean(1)
    return xr.DataArray(shares.numpy(), dims="pair", coords={"pair": list(range(len(shares)))})


def removal_costs(subject: Subject, sites: Sequence[Site]) -> xr.DataArray:
    """Accuracy lost with each head at its mean, over (component, part).

    A part is a pair, on sequences that are broken there only (`pair 0` and so on), or `palindrome`. Means are those of
    each position over sequences of the task.
    """
    source = Named(name="sequences", value=sequences(subject, "reference"))
    batch = sequences(subject, "removal")
    whole = batch.select(batch.targets[:, -1] == 1)
    before = (called_palindrome(subject), float((scores(subject.model, whole) > 0).double().mean()))
    rows = []
    for site in sites:
        removed = [Mean(site=site, source=source)]
        lost = called_palindrome(subject, removed) - before[0]
        rows.append([*lost.values, before[1] - float((scores(subject.model, whole, removed) > 0).double().mean())])
    parts = [*(f"pair {pair}" for pair in before[0].pair.values.tolist()), "palindrome"]
    return xr.DataArray(rows, dims=("component", "part"), coords={"component": list(map(str, sites)), "part": parts})
