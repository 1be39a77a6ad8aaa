"""The lead of an answer over its foil, with parts of the model replaced; and heads, chosen by score or at random."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import Batch, HookedModel, Intervention, Named, Site, generator, run_with
from mnemoscope.analyses import head_scores, make_removal
from mnemoscope.core import Replacement
from mnemoscope.interventions import Recordings
from mnemoscope.systems.language_models.prompts import CHOOSING, N_CHOOSING, repeated

ROWS = 16
"""Prompts in one forward pass: the logits of a vocabulary of 50,000 take 8 MB a prompt of 40 tokens."""
SHARE = 0.05
"""Share of all heads that the name of a score goes to: 7 of GPT-2's 144, 14 of SmolLM2's 270."""
N_DRAWS = 4
"""Sets of random heads that a set is compared with."""

Head = tuple[int, int]
"""Layer and number."""
Score = Literal["induction", "previous token"]


def ahead(
    model: HookedModel,
    batch: Batch,
    foil: Int[Tensor, "batch pos"],
    interventions: Callable[[slice], Sequence[Intervention]] | None = None,
) -> tuple[Float[np.ndarray, " batch"], Float[np.ndarray, " batch"]]:
    """The mean logit(answer) - logit(foil) of each prompt, and how often the answer leads, over scored positions."""
    differences, right = [], []
    recordings = Recordings(model)
    for start in range(0, len(batch), ROWS):
        rows = slice(start, start + ROWS)
        part = batch.select(rows)
        done = [] if interventions is None else interventions(rows)
        logits = run_with(model, part, done, recordings=recordings)
        scored = part.scored.to(logits.device)
        at = logits[scored]
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


def by_score(model: HookedModel, score: Score, *, share: float = SHARE, below: int | None = None) -> list[Head]:
    """The heads with the highest `ms.analyses.head_scores`, best first, on repeated words used for nothing else.

    A share of all heads is chosen, of layers before `below` only; none: of all.
    """
    found = head_scores(model, repeated(model, n=N_CHOOSING, seed=CHOOSING)).score.sel(score_name=score)
    return highest(found.isel(layer=slice(below)), n_chosen(model, share))


def highest(scores: xr.DataArray, n: int) -> list[Head]:
    """The n heads with the highest scores over (layer, head), the highest first."""
    stacked = scores.transpose("layer", "head").stack(each=("layer", "head"))
    order = np.argsort(-stacked.to_numpy(), kind="stable")[:n]
    return [(int(layer), int(head)) for layer, head in stacked["each"].to_numpy()[order]]


def random_heads(
    model: HookedModel, like: Sequence[Head], *, without: Sequence[Head] = (), n: int = N_DRAWS
) -> list[list[Head]]:
    """Sets of random heads outside `like` and `without`, as many per layer as in `like`, or fewer if it lacks them."""
    sets = []
    for i in range(n):
        draws, drawn = generator(i, "random heads"), []
        for layer in sorted({layer for layer, _ in like}):
            others = [h for h in range(model.cfg.n_heads) if (layer, h) not in {*like, *without}]
            wanted = sum(layer == each for each, _ in like)
            drawn += [(layer, others[int(j)]) for j in torch.randperm(len(others), generator=draws)[:wanted]]
        sets.append(drawn)
    return sets


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


def lost(clean: Float[np.ndarray, " prompt"], left: Float[np.ndarray, " prompt"], least: float) -> np.ndarray:
    """The share of an effect that is lost; of one that is smaller than `least`, as a share of that."""
    return (clean - left) / np.maximum(clean, least)
