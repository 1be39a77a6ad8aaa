"""The lead of an answer over its foil, with parts of the model replaced; and heads, chosen by score or at random."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import Batch, HookedModel, Intervention, Mean, Named, Resample, Site, generator
from mnemoscope.analyses import head_scores, make_removal
from mnemoscope.core import Replacement
from mnemoscope.interventions import Recordings, run_at
from mnemoscope.systems.language_models.prompts import CHOOSING, N_CHOOSING, repeated
from mnemoscope.systems.language_models.words import COMMON

ROWS = 16
"""Prompts in one forward pass: the logits of a vocabulary of 50,000 take 8 MB a prompt of 40 tokens."""
SHARE = 0.05
"""Share of all heads that the name of a score goes to: 7 of GPT-2's 144, 14 of SmolLM2's 270."""
N_DRAWS = 20
"""Sets of random heads that a set is compared with."""
LEAST = 1.0
"""Logits: e times as likely as the foil. A smaller lead counts as that."""

Head = tuple[int, int]
"""Layer and number."""
Score = Literal["induction", "previous token"]


def ahead(
    model: HookedModel,
    batch: Batch,
    foil: Int[Tensor, "batch pos"],
    interventions: Callable[[slice], Sequence[Intervention]] | None = None,
    *,
    recordings: Recordings | None = None,
) -> tuple[Float[np.ndarray, " batch"], Float[np.ndarray, " batch"]]:
    """The mean logit(answer) - logit(foil) of each prompt, and how often the answer leads, over scored positions.

    Pass `recordings` of the model where several calls are about the same prompts.
    """
    differences, right = [], []
    recordings = Recordings(model) if recordings is None else recordings
    for start in range(0, len(batch), ROWS):
        rows = slice(start, start + ROWS)
        part = batch.select(rows)
        done = [] if interventions is None else interventions(rows)
        at = run_at(model, part, done, part.scored, recordings=recordings)
        scored = part.scored.to(at.device)
        due, other = (tokens.to(at.device)[scored] for tokens in (part.targets, foil[rows]))
        difference = (at.gather(1, due[:, None]) - at.gather(1, other[:, None]))[:, 0].double()
        n = scored.sum(1)
        row = torch.arange(len(part), device=at.device).repeat_interleave(n)
        for found, values in ((differences, difference), (right, (at.argmax(1) == due).double())):
            total = torch.zeros(len(part), dtype=torch.double, device=at.device).index_add(0, row, values)
            found.append((total / n).cpu().numpy())
    return np.concatenate(differences), np.concatenate(right)


def n_chosen(model: HookedModel, share: float) -> int:
    """The number of heads that make up a share of all; at least one."""
    return max(1, round(share * model.cfg.n_layers * model.cfg.n_heads))


def by_score(
    model: HookedModel, score: Score, *, share: float = SHARE, below: int | None = None, words: str = COMMON
) -> list[Head]:
    """The heads with the highest `ms.analyses.head_scores`, best first, on repeated words used for nothing else.

    A share of all heads is chosen, of layers before `below` only; none: of all.
    """
    found = head_scores(model, repeated(model, n=N_CHOOSING, seed=CHOOSING, words=words)).score.sel(score_name=score)
    return highest(found.isel(layer=slice(below)), n_chosen(model, share))


def highest(scores: xr.DataArray, n: int) -> list[Head]:
    """The n heads with the highest scores over (layer, head), the highest first."""
    stacked = scores.transpose("layer", "head").stack(each=("layer", "head"))
    order = np.argsort(-stacked.to_numpy(), kind="stable")[:n]
    return [(int(layer), int(head)) for layer, head in stacked["each"].to_numpy()[order]]


def random_heads(
    model: HookedModel, like: Sequence[Head], *, named: Sequence[Head] = (), n: int = N_DRAWS
) -> list[list[Head]]:
    """Sets of random heads, as many as in `like` and layer by layer, of which none is in `like` or otherwise `named`.

    Where a layer has too few heads left, the nearest layers with some give theirs; a set is smaller than `like` only if
    the model has no more.
    """
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    taken = {*like, *named}
    sets = []
    for i in range(n):
        draws = generator(i, "random heads")
        order = {layer: torch.randperm(n_heads, generator=draws).tolist() for layer in range(n_layers)}
        left = {layer: [head for head in order[layer] if (layer, head) not in taken] for layer in order}
        drawn: list[Head] = []
        for layer, _ in sorted(like):
            if near := sorted((abs(other - layer), other) for other in left if left[other]):
                drawn.append((near[0][1], left[near[0][1]].pop()))
        sets.append(sorted(drawn))
    return sets


def beside_random(each: Sequence[Float[np.ndarray, " prompt"]]) -> dict[str, Float[np.ndarray, " prompt"]]:
    """The loss without a set of heads, the first entry, beside the losses without random sets, the others.

    `effect` is the difference from their mean, `beyond` that from the largest of them.
    """
    of_random = np.mean(each[1:], 0)
    return {
        "effect": each[0] - of_random, "beyond": each[0] - np.max(each[1:], 0), "lost": each[0],
        "lost_random": of_random,
    }  # fmt: skip


def without(
    heads: Sequence[Head], reference: Batch, kind: Replacement, *, pos: str | None = None, within: str | None = None
) -> list[Intervention]:
    """Interventions that replace the outputs of all these heads together by those on other prompts.

    The latent `within` classes the prompts of `reference`; the latent `pos` says where, none: everywhere.
    """
    source = Named(name="other prompts", value=reference)
    return [
        make_removal(kind, Site(kind="z", layer=layer, head=head, pos=pos), source, within) for layer, head in heads
    ]


def lost_each(
    model: HookedModel,
    batch: Batch,
    foil: Int[Tensor, "batch pos"],
    clean: Float[np.ndarray, " batch"],
    removals: Sequence[Sequence[Intervention]],
) -> list[Float[np.ndarray, " batch"]]:
    """The share of the lead that is lost under each set of interventions."""
    recordings = Recordings(model)
    taken = [each for removed in removals for each in removed if isinstance(each, Mean | Resample)]
    recordings.prepare((each.source, each.site) for each in taken if isinstance(each.site, Site))
    left = [ahead(model, batch, foil, lambda rows, done=done: done, recordings=recordings)[0] for done in removals]
    return [lost(clean, each, LEAST) for each in left]


def lost(clean: Float[np.ndarray, " prompt"], left: Float[np.ndarray, " prompt"], least: float) -> np.ndarray:
    """The share of an effect that is lost; of one that is smaller than `least`, as a share of that."""
    return (clean - left) / np.maximum(clean, least)
