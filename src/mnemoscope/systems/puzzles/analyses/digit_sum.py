"""Measurements on models that add: the circle of digits, the direction of the carry, and the order that finds it.

*Circle*: with m(d) the mean activation where digit d is due, the share of the variance of the ten means in the largest
Fourier mode of d; a mode other than the fifth is a circle in two dimensions. *Directions*: `direction_effects` of the
digit and of the carry, found on other sequences than they are tested on. *Order*: among the prompts in which the two
digits below are unlike, how often a head attends more to the one that comes first in an order.

*Shows* what is carried along these directions, and by which digits the head that carries the carry chooses. *Does not
show* how layer 1 puts carry and digits together.
"""

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope import Batch, InputError, PromptPairs, Site, Subject, ablate, generator, patch
from mnemoscope.analyses import Subspace, direction_effects, patterns, subspace
from mnemoscope.core import Replacement, memoize
from mnemoscope.systems.puzzles.constructed.digit_sum import ORDERS
from mnemoscope.systems.puzzles.tasks.digit_sum import BASE, DigitSum

N_FITTED, N_PAIRS, N_CHOSEN = 2048, 256, 128
"""Sums on which directions are found, pairs on which they are tested, and pairs by which a head is chosen."""


def task_of(subject: Subject) -> DigitSum:
    """The task of a subject; an `InputError` unless it is the sum, or the model has no two layers."""
    if not isinstance(subject.task, DigitSum):
        raise InputError(f"the measure is about sums; got a model of {subject.task.name}")
    if subject.model.cfg.n_layers != 2:
        raise InputError(f"the model must have two layers; got {subject.model.cfg.n_layers}")
    return subject.task


def sums(subject: Subject, *stream: str, n: int = N_FITTED) -> Batch:
    """Fresh sums from a stream of the subject's seed."""
    return task_of(subject).sample(n, split="test", generator=generator(subject.seed, *stream))


@torch.no_grad()
def accuracy(subject: Subject) -> float:
    """The share of right digits on fresh sums."""
    batch = sums(subject, "accuracy")
    right = subject.model(batch.inputs).argmax(-1) == batch.targets
    return float(right[batch.scored].double().mean())


def mode_shares(means: Float[Tensor, "digit width"]) -> Float[np.ndarray, " mode"]:
    """The share of the variance of the means of ten digits that lies in each Fourier mode, 1 to 5."""
    power = torch.fft.fft(means.double(), dim=0).abs().square().sum(1)[1:]
    folded = [power[k - 1] + (power[BASE - 1 - k] if 2 * k != BASE else 0) for k in range(1, BASE // 2 + 1)]
    return (torch.stack(folded) / power.sum()).numpy()


def carry_pairs(subject: Subject, place: int, stream: str, n: int = N_PAIRS) -> PromptPairs:
    """About `n` pairs in which the carry into a place differs, read where its digit is due."""
    task = task_of(subject)
    batch = sums(subject, "carry", stream, str(place), n=n * (task.n_digits - 1))
    pairs = PromptPairs.from_task(task, batch, kind="flip_carry", seed=subject.seed)
    return _read_at(pairs.select(pairs.corrupted.known["asker"] == task.due[place]), task.due[place])


def digit_pairs(subject: Subject, place: int) -> PromptPairs:
    """Pairs of unlike sums with another digit at a place, read where it is due."""
    task = task_of(subject)
    batch = sums(subject, "digits", str(place), n=N_PAIRS)
    other, due = batch.select((torch.arange(len(batch)) + 1) % len(batch)), task.due[place]
    pairs = PromptPairs(clean=batch, corrupted=other, name="another sum")
    return _read_at(pairs.select(pairs.answer[:, due] != pairs.foil[:, due]), due)


def _read_at(pairs: PromptPairs, pos: int) -> PromptPairs:
    scored = torch.zeros_like(pairs.scored)
    scored[:, pos] = True
    return pairs.read_at(scored)


def digit_directions(subject: Subject, place: int) -> Subspace:
    """The singular directions of the digit of a place before the unembedding, where it is due."""
    return _directions(
        subject, f"digit_{place}", None, Site(kind="resid_post", layer=1, pos=task_of(subject).due[place])
    )


def carry_directions(subject: Subject, place: int, site: Site) -> Subspace:
    """The singular directions of the carry into a place, among sums whose digits there add to the same last digit."""
    return _directions(subject, f"carry_{place}", f"units_{place}", site)


def _directions(subject: Subject, latent: str, given: str | None, site: Site) -> Subspace:
    return subspace(
        subject.model, sums(subject, "fit"), latent, site=site, given=given, method="means", n_shuffles=1,
        seed=subject.seed,
    )  # fmt: skip


@torch.no_grad()
def digit_circles(subject: Subject) -> xr.Dataset:
    """The circle of digits before the unembedding.

    Over `place`: `circle`, the share of the largest Fourier mode; `mode`, its number; `share`, that of two directions
    in the variance of the means; `followed`, how often the answer is that of another sum with these two taken from
    there.
    """
    rows = []
    for place in range(task_of(subject).n_digits):
        found = digit_directions(subject, place)
        assert found.means is not None
        shares = mode_shares(found.means)[:-1]
        two = direction_effects(subject.model, digit_pairs(subject, place), found, ranks=(2,), n_random=0).isel(rank=0)
        rows.append([shares.max(), shares.argmax() + 1, float(two.share), float(two.followed)])
    names = ("circle", "mode", "share", "followed")
    return xr.Dataset({name: ("place", column) for name, column in zip(names, np.transpose(rows), strict=True)})


def agreement(order: Sequence[int], one: Tensor, other: Tensor, more: Tensor) -> float:
    """Share of the prompts in which attention is larger to the digit that comes first in an order; digits are unlike.

    `more` is the attention to `one` less that to `other`. Ties count half.
    """
    rank = torch.tensor([order.index(digit) for digit in range(BASE)])
    unlike = one != other
    sign = torch.sign(more[unlike]) * torch.sign((rank[other] - rank[one])[unlike])
    return float(((sign + 1) / 2).double().mean())


@memoize
def carry_heads(subject: Subject) -> xr.Dataset:
    """The head of layer 0, and its position, that carries the carry into each place.

    Both are chosen by the share of the logit difference that goes with the output of the head there, on pairs of their
    own. Over `place`: `head`, `pos`, and `carries`, that share on other pairs.
    """
    task, rows = task_of(subject), []
    for place in range(task.n_digits - 1):
        where = list(range(task.due[place] + 1))
        effects = _carried(subject, carry_pairs(subject, place, "choose", N_CHOSEN), where).to_numpy()
        pos, head = np.unravel_index(effects.argmax(), effects.shape)
        tested = _carried(subject, carry_pairs(subject, place, "test"), [where[pos]])
        rows.append([int(head), where[pos], float(tested[0, head])])
    names = ("head", "pos", "carries")
    return xr.Dataset({name: ("place", column) for name, column in zip(names, np.transpose(rows), strict=True)})


def carry_orders(subject: Subject) -> xr.Dataset:
    """The order of digits by which the carry heads choose between the two digits below.

    Over `place`: `looks`, the attention to the two, and by every order of `ORDERS` the agreement with it (`size`: with
    that order or its reverse); `either` is that with the published one where the two do not sum to nine.
    """
    task, heads, batch = task_of(subject), carry_heads(subject), sums(subject, "order")
    pattern, rows = patterns(subject.model, batch)[:, 0].double(), []
    for place in range(task.n_digits - 1):
        head, pos = (int(heads[name][place]) for name in ("head", "pos"))
        one, other = task.digit_positions(place + 1)
        to_one, to_other = (pattern[:, head, pos, key] for key in (one, other))
        told = batch.inputs[:, one], batch.inputs[:, other], to_one - to_other
        agreed = [agreement(order, *told) for order in ORDERS.values()]
        plain = told[0] + told[1] != BASE - 1
        either = agreement(ORDERS["published"], *(each[plain] for each in told))
        rows.append([float((to_one + to_other).mean()), *agreed[:-1], max(agreed[-1], 1 - agreed[-1]), either])
    names = ("looks", *ORDERS, "either")
    return xr.Dataset({name: ("place", column) for name, column in zip(names, np.transpose(rows), strict=True)})


@torch.no_grad()
def carry_direction(subject: Subject) -> xr.Dataset:
    """The share of the logit difference that goes with one direction of the carry, over `place`.

    `early`: after layer 0, at the position of the carry head of that place. `late`: before the unembedding, where the
    digit is due. `early_share` and `late_share`: that of the direction in the variance.
    """
    task, heads, rows = task_of(subject), carry_heads(subject), []
    for place in range(task.n_digits - 1):
        pairs, row = carry_pairs(subject, place, "test"), []
        for layer, pos in ((0, int(heads.pos[place])), (1, task.due[place])):
            found = carry_directions(subject, place, Site(kind="resid_post", layer=layer, pos=pos))
            one = direction_effects(subject.model, pairs, found, ranks=(1,), n_random=0).isel(rank=0)
            row += [float(one.swapped), float(one.share)]
        rows.append(row)
    names = ("early", "early_share", "late", "late_share")
    return xr.Dataset({name: ("place", column) for name, column in zip(names, np.transpose(rows), strict=True)})


def _carried(subject: Subject, pairs: PromptPairs, where: Sequence[int]) -> xr.DataArray:
    """Over (pos, head): the share of the logit difference that goes with the output of a head of layer 0."""
    swept = patch(
        subject.model, pairs, kind="z", over=("layer", "pos", "head"), directions=("noising",),
        only={"layer": [0], "pos": where},
    ).isel(metric=0, direction=0, layer=0).mean("prompt")  # fmt: skip
    return ((swept.clean - swept.value) / (swept.clean - swept.corrupted)).transpose("pos", "head")


def layer_costs(subject: Subject, *, kind: Replacement = "mean", metric: str = "log_prob") -> xr.DataArray:
    """Cost of the removal of one head for the digits, over (layer, head): nats of log-probability, or accuracy."""
    batch, cfg = sums(subject, "costs", n=1024), subject.model.cfg
    lost = ablate(
        subject.model, batch, skills={"digits": batch.scored}, reference=batch, kinds=[kind], seed=subject.seed
    ).isel(kind=0, skill=0)
    cost = lost[f"clean_{metric}"] - lost[metric]
    return xr.DataArray(
        cost.to_numpy().reshape(cfg.n_layers, cfg.n_heads), dims=("layer", "head"), attrs={"unit": "nats"}
    )
