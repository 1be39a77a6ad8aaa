"""Measurements on models that sort a list: where the own head of a value looks, what it copies, and who owns what.

The own head of a value is the one whose mean ablation costs its answers most on one half of the prompts.

*Shows* that the look at the next value and the copy are there, that the answer needs them, and how values are shared
out. *Does not show* why training shares them out in this way.
"""

from dataclasses import replace

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import Batch, HookedModel, InputError, Site, Subject, ablate, generator
from mnemoscope.analyses import (
    PART_EFFECTS,
    Metric,
    division_of_labour,
    head_effects,
    ov_circuits,
    patterns,
    predict_removal,
    qk_circuits,
)
from mnemoscope.core import memoize
from mnemoscope.systems.puzzles.tasks.sorted_list import SortedList

N_LISTS, N_PREDICTED = 2048, 512
"""Lists on which effects are measured, and on which circuits are compared with what happens."""
N_SHUFFLES = 100


def task_of(subject: Subject) -> SortedList:
    """The task of a subject; an `InputError` unless lists are sorted."""
    if not isinstance(subject.task, SortedList):
        raise InputError(f"the measure is about sorted lists; got a model of {subject.task.name}")
    return subject.task


def lists(subject: Subject, *stream: str, n: int = N_LISTS) -> Batch:
    """Fresh lists from a stream of the subject's seed."""
    return task_of(subject).sample(n, split="test", generator=generator(subject.seed, *stream))


@memoize
def value_effects(subject: Subject, *, metric: Metric = "log_prob") -> xr.DataArray:
    """The cost of mean ablation of each head for the answers of each value."""
    batch = lists(subject, "value effects")
    parts = {str(value): batch.scored & (batch.targets == value) for value in task_of(subject).answers}
    return head_effects(subject.model, batch, parts, metric=metric, seed=subject.seed)


PART_EFFECTS.add(SortedList.name, value_effects)


def owners(subject: Subject) -> Int[np.ndarray, " value"]:
    """The number of the own head of each value."""
    effects = value_effects(subject)
    return effects.sel(half="own").transpose("part", "head").argmax("head").to_numpy()


def range_agreement(owner: Bool[np.ndarray, " value"]) -> float:
    """The largest share of values that one interval of values for one head, and the rest for the other, gets right."""
    n = len(owner)
    before = np.concatenate(([0], np.cumsum(owner)))
    start, stop = np.triu_indices(n + 1)
    inside = before[stop] - before[start]
    right = inside + (n - (stop - start)) - (before[-1] - inside)
    return float(np.maximum(right, n - right).max() / n)


def sharing(subject: Subject) -> dict[str, float]:
    """The way in which two heads share out the values.

    `division`, `share` and `larger`, the share of values of the head that owns more. `range`: how far one interval and
    the rest describe who owns what, where 0 is the mean over shuffles of the owners, and 1 exact. `first` and `last`
    are the smallest and the largest value of the head that owns fewer.
    """
    if len(value_effects(subject)["head"]) != 2:
        raise InputError("the model must have two heads; take the size of the preset sorted-list")
    found = division_of_labour(value_effects(subject))
    owner = owners(subject).astype(bool)
    owner = owner if 2 * owner.sum() <= len(owner) else ~owner
    draws = np.random.default_rng(0)
    by_chance = float(np.mean([range_agreement(draws.permutation(owner)) for _ in range(N_SHUFFLES)]))
    right = range_agreement(owner)
    (owned,) = owner.nonzero()
    return {
        "division": float(found.division),
        "range": (right - by_chance) / (1 - by_chance) if by_chance < 1 else 0.0,
        "share": float(found.share),
        "larger": 1 - float(owner.mean()),
        "first": float(owned[0]) if len(owned) else -1.0,
        "last": float(owned[-1]) if len(owned) else -1.0,
    }


@torch.no_grad()
def accuracy(subject: Subject) -> float:
    """The share of right answers on fresh lists."""
    batch = lists(subject, "accuracy")
    guesses = subject.model(batch.inputs)[batch.scored].argmax(-1)
    return float((guesses == batch.targets[batch.scored]).double().mean())


def looks_and_copies(subject: Subject) -> dict[str, float]:
    """The parts of the claim that heads look at the next value and copy it.

    `looks`: the share of answers at which the own head of the answer attends to the next value more than to any other
    of the list; `qk`: the same of the scores that its QK circuit gives the tokens. `copies`: the share of values that
    the OV circuit of the own head raises above all others. `predicted`: the correlation of the change of the logits
    that the OV circuit predicts with the actual one when a head is mean-ablated, mean over the heads that matter.
    `causes`: the accuracy lost without attention to the next value, less that without attention to another one.
    """
    batch, few = lists(subject, "looks"), lists(subject, "circuits", n=N_PREDICTED)
    own, n = torch.from_numpy(owners(subject)), task_of(subject).n_values
    attended = patterns(subject.model, batch)[:, 0]
    qk = qk_circuits(subject.model, normalisation="linearised", at=few).token_token.isel(layer=0)
    scores = torch.from_numpy(qk.transpose("head", "query_token", "key_token").to_numpy())
    by_token = scores[:, batch.inputs[:, :, None], batch.inputs[:, None]].transpose(0, 1)
    ov = ov_circuits(subject.model, normalisation="linearised", at=few).token_logit.isel(layer=0)
    copied = torch.from_numpy(ov.transpose("head", "source_token", "logit").to_numpy())[own, torch.arange(n), :n]
    removal = predict_removal(subject.model, few, reference=few).correlation.sel(kind="mean", read="circuit")
    return {
        "looks": _top_of_list(task_of(subject), batch, own, attended),
        "qk": _top_of_list(task_of(subject), batch, own, by_token),
        "copies": float((copied.argmax(-1) == torch.arange(n)).double().mean()),
        "predicted": float(removal.mean().fillna(0)),
        "causes": cost_of_the_look(subject),
    }


def _top_of_list(
    task: SortedList,
    batch: Batch,
    own: Int[Tensor, " value"],
    weights: Float[Tensor, "batch head query key"],
) -> float:
    """The share of answers for which the next value has the largest weight in the list, in the own head."""
    rows, pos = batch.scored.nonzero(as_tuple=True)
    in_list = weights[rows, own[batch.targets[rows, pos]], pos, : task.length]
    return float((in_list.argmax(-1) == batch.latents["next_at"][rows, pos]).double().mean())


def cost_of_the_look(subject: Subject) -> float:
    """Accuracy lost where no head can attend to the next value, less that where none can to a random other one.

    Each list is asked at one random position.
    """
    task, batch = task_of(subject), lists(subject, "cost of the look")
    draws = torch.rand(len(batch), 2, generator=generator(subject.seed, "asker"), dtype=torch.float32)
    asker = task.length + (draws[:, 0] * task.length).long()
    here = batch.latents["next_at"].gather(1, asker[:, None])[:, 0]
    other = (here + 1 + (draws[:, 1] * (task.length - 1)).long()) % task.length
    asked = torch.nn.functional.one_hot(asker, task.n_ctx).bool()
    batch = replace(batch, known={"asker": asker, "next": here, "other": other}, scored=asked)
    lost = ablate(
        subject.model, batch, skills={"answer": asked}, reference=batch, targets=_looks(subject.model),
        kinds=("knockout",),
    )  # fmt: skip
    left = lost.accuracy.sel(kind="knockout", skill="answer")
    return float(left.sel(component="other") - left.sel(component="next"))


def _looks(model: HookedModel) -> dict[str, tuple[Site, ...]]:
    """Attention of all heads from the asker to the next value, and to the other one."""
    heads = range(model.cfg.n_heads)
    return {
        key: tuple(Site(kind="scores", layer=0, head=head, pos="asker", key=key) for head in heads)
        for key in ("next", "other")
    }
