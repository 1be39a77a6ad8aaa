"""Gradient symmetricity and distance irrelevance, two numbers that tell clocks from pizzas (Zhong et al. 2023).

*Gradient symmetricity* is the mean over (a, b, c) of the cosine between the gradients of the logit of c with respect to
the embedding of a and to that of b. A model that sees nothing but the sum of the two embeddings has 1.

*Distance irrelevance* is about the right logit L(a, b): the mean over a - b of its standard deviation over a + b,
divided by its standard deviation over all pairs. Near 1 the difference of the numbers does not matter; where the logit
depends on nothing else, as in a pizza, it is 0.

*Shows* how the two numbers are treated. *Does not show* circles: a table of answers is as asymmetric and as irrelevant
as a clock. And a gradient is symmetric as soon as attention weighs both numbers alike (`evened`).
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope import HookedModel
from mnemoscope.systems.modular_addition.analyses.circles import answer_logits
from mnemoscope.systems.modular_addition.tasks import ModularAddition


def embedding_gradients(
    model: HookedModel, task: ModularAddition, answer: int, *, hooks: Sequence[tuple[str, Any]] = ()
) -> Float[Tensor, "batch number d_model"]:
    """The gradients of the logit of one answer with respect to both embeddings, for all sequences."""
    (found,) = _gradients(model, task, [answer], hooks)
    return found


def _gradients(
    model: HookedModel, task: ModularAddition, answers: Sequence[int], hooks: Sequence[tuple[str, Any]]
) -> list[Tensor]:
    kept: list[Tensor] = []
    with torch.enable_grad():
        logits = model.run_with_hooks(
            task.table().inputs, fwd_hooks=[("hook_embed", partial(_start_here, kept=kept)), *hooks]
        )[:, -1]
        return [
            torch.autograd.grad(logits[:, answer].sum(), kept[0], retain_graph=True)[0][:, :2] for answer in answers
        ]


def _start_here(embedded: Tensor, hook: Any, *, kept: list[Tensor]) -> Tensor:
    kept.append(embedded.detach().requires_grad_())
    return kept[0]


def symmetricity(model: HookedModel, task: ModularAddition, *, hooks: Sequence[tuple[str, Any]] = ()) -> float:
    """Gradient symmetricity over all p³ triples; a cosine with a gradient of zero counts as 0."""
    every = _gradients(model, task, range(task.modulus), hooks)
    cosines = [torch.nn.functional.cosine_similarity(*each.double().unbind(1), dim=-1) for each in every]
    return float(torch.stack(cosines).mean())


def irrelevance(model: HookedModel, task: ModularAddition) -> float:
    """Distance irrelevance; NaN where the right logit is the same for all pairs."""
    logits, p = answer_logits(model, task), task.modulus
    a, b = (each.flatten() for each in torch.meshgrid(torch.arange(p), torch.arange(p), indexing="ij"))
    right = logits[a, b, (a + b) % p]
    by_difference = torch.empty(p, p, dtype=torch.double)
    by_difference[(a - b) % p, (a + b) % p] = right
    whole = right.std(correction=0)
    return float(by_difference.std(1, correction=0).mean() / whole) if whole > 1e-9 else math.nan


def evened(model: HookedModel, task: ModularAddition) -> float:
    """Gradient symmetricity where every head weighs both numbers alike, by their mean weight."""
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.cfg.n_layers)]
    return symmetricity(model, task, hooks=[(name, _even) for name in names])


def _even(pattern: Float[Tensor, "batch head query key"], hook: Any) -> Tensor:
    mean = pattern[..., :2].mean(-1, keepdim=True).expand(*pattern.shape[:-1], 2)
    return torch.cat((mean, pattern[..., 2:]), -1).detach()


def symmetry(model: HookedModel, task: ModularAddition) -> xr.Dataset:
    """`symmetricity`, `irrelevance` and `evened` as scalars."""
    found = {
        "symmetricity": symmetricity(model, task),
        "irrelevance": irrelevance(model, task),
        "evened": evened(model, task),
    }
    return xr.Dataset(found, attrs={"unit": "mean cosine; ratio of standard deviations; mean cosine"})
