"""Measurements on models that name the first unique letter: what layer 1 reads of layer 0, and who suppresses whom.

Pairs are read at the last position: a letter that stood once on the clean side stands twice on the other. An *input* of
the heads of layer 1 is their queries, keys or values; the edges from heads of layer 0 into one of them are patched
together, and the share is that of the logit difference that goes with them.

*Shows* through which inputs the repetition reaches the answer, given the rest of the model, and where heads of layer 0
look. Shares of the three inputs need not add up. *Does not show* what the heads would do on other letters.
"""

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr

from mnemoscope import Batch, Edge, InputError, Named, Patch, PromptPairs, Site, Subject, generator, run_with
from mnemoscope.analyses import PART_EFFECTS, Metric, division_of_labour, head_effects, patterns
from mnemoscope.core import memoize, metrics
from mnemoscope.interventions import Recordings
from mnemoscope.systems.puzzles.tasks.first_unique import FirstUnique

N_SEQUENCES, N_PAIRS = 2048, 512
DUPLICATE = 0.5
"""Share of the attention to letters above which a head is a duplicate-token head; an even pattern has .14."""
INPUTS = ("q", "k", "v")


def task_of(subject: Subject) -> FirstUnique:
    """The task of a subject; an `InputError` unless it is the first unique letter."""
    if not isinstance(subject.task, FirstUnique):
        raise InputError(f"the measure is about the first unique letter; got a model of {subject.task.name}")
    if subject.model.cfg.n_layers != 2:
        raise InputError(f"the model must have two layers; got {subject.model.cfg.n_layers}")
    return subject.task


def letters(subject: Subject, *stream: str, n: int = N_SEQUENCES) -> Batch:
    """Fresh sequences from a stream of the subject's seed."""
    return task_of(subject).sample(n, split="test", generator=generator(subject.seed, *stream))


@torch.no_grad()
def accuracy(subject: Subject) -> float:
    """The share of right answers on fresh sequences, the smaller of those where it is a letter, first or later."""
    batch = letters(subject, "accuracy")
    right = subject.model(batch.inputs).argmax(-1) == batch.targets
    skills = task_of(subject).skills(batch)
    return min(float(right[skills[name]].double().mean()) for name in ("first", "later"))


@memoize
def letter_effects(subject: Subject, *, metric: Metric = "log_prob") -> xr.DataArray:
    """The cost of mean ablation of each head of layer 1 for the answers of each letter."""
    batch, task = letters(subject, "letter effects"), task_of(subject)
    parts = {letter: batch.targets == token for token, letter in enumerate(task.letters)}
    heads = [(1, head) for head in range(subject.model.cfg.n_heads)]
    return head_effects(subject.model, batch, parts, heads=heads, metric=metric, seed=subject.seed)


PART_EFFECTS.add(FirstUnique.name, letter_effects)


def letter_shares(effects: xr.DataArray) -> dict[str, float]:
    """The way in which heads share the costs of letters, in nats, without a least cost.

    `share`, `random` and `division` are those of `division_of_labour`. `largest` is the share of the busiest head, and
    `n_owners` the number of heads that own a letter.
    """
    found = division_of_labour(effects, least=0)
    return {
        **{name: float(found[name]) for name in ("division", "share", "random")},
        "largest": float(found.head_share.max()),
        "n_owners": float((found.parts > 0).sum()),
    }


def repeated_pairs(subject: Subject) -> PromptPairs:
    """Pairs in which the letter of the answer is repeated, read at the last position, from fresh sequences."""
    batch, task = letters(subject, "pairs", n=N_PAIRS), task_of(subject)
    batch = batch.select(batch.targets[:, -1] != task.none)
    return PromptPairs.from_task(task, batch, kind="repeat_answer", seed=subject.seed).read_last()


@torch.no_grad()
def input_shares(subject: Subject, writers: Sequence[int]) -> dict[str, float]:
    """The share of the logit difference that goes from heads of layer 0 through each input of layer 1.

    Corrupted outputs of the writers reach that input of all heads of layer 1 in the clean run, and nothing else does:
    (clean - patched) / (clean - corrupted). 0 without a writer.
    """
    model, pairs = subject.model, repeated_pairs(subject)
    source, recordings = Named(name="repeated", value=pairs.corrupted), Recordings(model)

    def value(batch: Batch, changes: list[Patch]) -> float:
        logits = run_with(model, batch, changes, recordings=recordings)[:, -1].double()
        return float(metrics.logit_difference(logits, pairs.answer[:, -1], pairs.foil[:, -1]).mean())

    clean, corrupted = value(pairs.clean, []), value(pairs.corrupted, [])
    shares = {}
    for through in INPUTS:
        edges = [
            Edge(
                writer=Site(kind="z", layer=0, head=head),
                reader=Site(kind="z", layer=1, head=reader),
                through=through,
            )
            for head in writers
            for reader in range(model.cfg.n_heads)
        ]
        patched = value(pairs.clean, [Patch(site=edge, source=source) for edge in edges]) if edges else clean
        shares[through] = (clean - patched) / (clean - corrupted)
    return shares


@torch.no_grad()
def duplicate_attention(subject: Subject) -> xr.DataArray:
    """Attention of each head of layer 0 from a repeated letter to its earlier places, as a share of that to letters.

    Over `head`; START and the letter itself are left out of both. The attribute `chance` has the share of an even
    pattern.
    """
    batch = letters(subject, "duplicates", n=N_PAIRS)
    inputs, repeated = batch.inputs, batch.latents["is_repeat"]
    earlier = torch.ones(inputs.shape[1], inputs.shape[1], dtype=torch.bool).tril(-1)
    earlier[:, 0] = False
    same = (inputs[:, :, None] == inputs[:, None]) & earlier
    pattern, shares = patterns(subject.model, batch)[:, 0].double(), []
    for head in range(pattern.shape[1]):
        to_same, to_letters = ((pattern[:, head] * mask).sum(-1)[repeated] for mask in (same, earlier))
        shares.append(float(to_same.sum() / to_letters.sum()))
    even = same.sum(-1)[repeated].sum() / earlier.expand_as(same).sum(-1)[repeated].sum()
    names = [f"L0H{h}" for h in range(pattern.shape[1])]
    return xr.DataArray(shares, dims="head", coords={"head": names}, attrs={"chance": float(even)})


def suppression(subject: Subject) -> dict[str, float]:
    """The parts of the claim that duplicate-token heads make layer 1 suppress repeated letters.

    A duplicate-token head is one with more than half of its attention to letters on earlier places of the same letter.
    `keys` and `values`: the share of the logit difference that goes from all of them through these inputs of layer 1;
    `queries`: that from any head of layer 0 through queries. `duplicates`: the largest such share of attention, and
    `n_duplicates`: how many heads these are.
    """
    attention = duplicate_attention(subject).to_numpy()
    heads = np.flatnonzero(attention > DUPLICATE).tolist()
    shares, every = input_shares(subject, heads), input_shares(subject, range(len(attention)))
    return {
        "keys": shares["k"],
        "values": shares["v"],
        "queries": every["q"],
        "duplicates": float(attention.max()),
        "n_duplicates": float(len(heads)),
    }
