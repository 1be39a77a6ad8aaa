r"""Whether the model uses what a probe reads: part of an activation is steered or swapped, and the answer follows.

With x the activation at a site on the clean prompt, P the projection on the subspace of a latent and m the class means,
what is added to x is

- `erase`: P (mean - x), as in `erasing`;
- `steer`: P (m[class of the other prompt] - m[own class]), a step along the difference of class means;
- `swap`: P (x of the other prompt - x), an interchange intervention in the subspace (Geiger et al. 2024, "Finding
  alignments between interpretable causal variables and distributed neural representations"), without learning.

The controls are those of `erasing`: `random`, vectors of the same length in random subspaces of the same rank, and
`shuffled`, the same edit with what permuted labels give. Where the latent is all that varies at the site, permuted
labels span it too, and swapping cannot differ from patching the site.

It shows that the answer depends on what lies in these directions at this site, given the rest of the model as it is,
and in the way that the other prompt predicts. It does not show that nothing but the latent lies there: that takes
partners that differ in everything else too. Nor does it show that no other site carries it. A swapped activation may be
one that the model never produces.
"""

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.analyses.forward import normalised
from mnemoscope.analyses.probes.displacement import activations, described, displaced, turned
from mnemoscope.analyses.probes.subspaces import Subspace
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.metrics import ACCURACY, LOGIT_DIFF, Metric, check_metric, correct
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator

Edit = Literal["erase", "steer", "swap"]
EDITS: tuple[Edit, ...] = get_args(Edit)


def foil_share(
    logits: Float[Tensor, "*rows d_vocab"], answer: Int[Tensor, "*rows"], foil: Int[Tensor, "*rows"]
) -> Float[Tensor, "*rows"]:
    """1 where the foil is the most probable token, 0 elsewhere."""
    return correct(logits, foil).to(logits.dtype)


FOIL = Metric(name="foil", unit="share", function=foil_share, higher_is="worse")


@torch.no_grad()
def edit(
    model: HookedModel,
    pairs: PromptPairs,
    subspace: Subspace,
    *,
    edits: Sequence[Edit] = EDITS,
    metrics: Sequence[Metric] = (LOGIT_DIFF, ACCURACY, FOIL),
    n_random: int = 20,
    seed: int = 0,
) -> xr.Dataset:
    """Answer against foil with the part of the clean activation inside the subspace erased, steered or swapped.

    Args:
        model: The one that the subspace was found in.
        pairs: The targets of the corrupted side are the answers that the edit should lead to. Minimal pairs that
            differ in the latent; or any sequences (`latents.partners`) with those targets.
        subspace: From `subspaces.subspace`.
        edits: Which.
        metrics: The value of a prompt is the mean over its scored positions. `FOIL`: how often the foil is the most
            probable token.
        n_random: Draws of the control.
        seed: The control is drawn from this seed's stream `random directions`.

    Returns:
        `value` over (direction, metric, edit, prompt), with the one direction `noising`, so that `patching.effects`
        makes shares of the difference between the prompts of it; `random` over (direction, metric, edit, draw,
        prompt) and `shuffled` over (direction, metric, edit, shuffle, prompt). Over (metric, prompt): `clean`,
        `corrupted`, and `patched`, with the whole activation at the site exchanged.

    Raises:
        InputError: As for `erase`, or a metric measures no prediction, or steering is asked of a latent that is a
            number or has other classes.
    """
    in_range("n_random", n_random, 1, math.inf)
    for argument, given in (("edits", list(edits)), ("metrics", [metric.name for metric in metrics])):
        if not given or len(set(given)) < len(given):
            raise InputError(f"{argument} must name at least one, each once; got {', '.join(given) or 'none'}")
    x, other = (activations(model, side, subspace) for side in (pairs.clean, pairs.corrupted))
    clean = normalised(model(pairs.clean.inputs))
    for metric in metrics:
        check_metric(metric, clean, pairs.answer, pairs.foil, generator=generator(seed, "metric"))

    def measured(move: Tensor) -> Float[np.ndarray, "metric prompt"]:
        return _by_metric(normalised(displaced(model, pairs.clean, subspace.site, move)), clean, pairs, metrics)

    values = []
    for one in edits:
        moves = [_displacement(one, of, pairs, x, other) for of in (subspace, *subspace.shuffled)]
        values.append([measured(move) for move in [*moves, *turned(subspace, moves[0], n_random, seed)]])
    runs = np.moveaxis(np.array([values]), 3, 1)  # direction metric edit run prompt
    n_shuffles, dims = len(subspace.shuffled), ("direction", "metric", "edit")
    corrupted = normalised(model(pairs.corrupted.inputs))
    return xr.Dataset(
        {
            "value": ((*dims, "prompt"), runs[:, :, :, 0]),
            "shuffled": ((*dims, "shuffle", "prompt"), runs[:, :, :, 1 : 1 + n_shuffles]),
            "random": ((*dims, "draw", "prompt"), runs[:, :, :, 1 + n_shuffles :]),
            "clean": (("metric", "prompt"), _by_metric(clean, clean, pairs, metrics)),
            "corrupted": (("metric", "prompt"), _by_metric(corrupted, clean, pairs, metrics)),
            "patched": (("metric", "prompt"), measured(other - x)),
        },
        coords={
            "direction": ["noising"],
            "metric": [metric.name for metric in metrics],
            "unit": ("metric", [metric.unit for metric in metrics]),
            "edit": list(edits),
            "prompt": range(len(pairs)),
        },
        attrs={**described(model, subspace), "pairs": pairs.name, "n": len(pairs)},
    )


def _displacement(one: Edit, subspace: Subspace, pairs: PromptPairs, x: Tensor, other: Tensor) -> Tensor:
    one_of("an edit", one, EDITS)
    match one:
        case "erase":
            return subspace.inside(subspace.centre - x)
        case "swap":
            return subspace.inside(other - x)
        case "steer":
            own, to = (subspace.mean_of(side) for side in (pairs.clean, pairs.corrupted))
            return subspace.inside(to - own)


def _by_metric(
    log_probs: Tensor, clean: Tensor, pairs: PromptPairs, metrics: Sequence[Metric]
) -> Float[np.ndarray, "metric prompt"]:
    values = torch.stack([metric(log_probs, pairs.answer, pairs.foil, clean).double() for metric in metrics])
    return (torch.where(pairs.scored, values, 0).sum(-1) / pairs.scored.sum(-1)).cpu().numpy()
