"""A model's answers on named tokens at chosen positions: mean probability, log-probability and accuracy.

A *target* is a token per position and the positions that count: the next token where a skill is tested, or any other
token that one wants to follow, such as one that a model confuses with the right one. Means are over positions; every
sequence counts alike, whatever its weight. Log-probabilities are in nats and may be minus infinity.

*Shows* how much of the prediction falls on each token. *Does not show* where it comes from: that takes a change of the
model between two such readings.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.analyses.forward import normalised
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.skills import Skills, check_skills

Targets = Mapping[str, tuple[Int[Tensor, "batch pos"], Bool[Tensor, "batch pos"]]]
"""Name to the token that is looked for at every position, and where it is looked for."""

SCORES = ("probability", "log_prob", "accuracy")
"""In the order of `score_sums`; accuracy: the share of positions at which the token is the most probable one."""


def skill_targets(batch: Batch, skills: Skills) -> Targets:
    """The next token where each skill is tested."""
    return {name: (batch.targets, where) for name, where in skills.items()}


def check_targets(batch: Batch, targets: Targets) -> None:
    """Refuse targets that do not fit a batch.

    Raises InputError where there are none, a shape differs from that of the batch, or a target is looked for nowhere.
    """
    if not targets:
        raise InputError("targets must name at least one token to look for; got none")
    check_skills(batch, {name: where for name, (_, where) in targets.items()})
    for name, (tokens, _) in targets.items():
        if tokens.shape != batch.inputs.shape:
            shapes = f"{tuple(batch.inputs.shape)}; got {tuple(tokens.shape)}"
            raise InputError(f"tokens of target {name} must have the shape (batch, pos) of the batch, {shapes}")


def score_sums(
    logits: Float[Tensor, "some pos d_vocab"], targets: Targets, rows: Int[Tensor, " some"]
) -> Float[Tensor, "target score"]:
    """Sums of the scores over the positions of each target, in float64.

    `logits` are of some `rows` of a batch, `targets` of the whole batch. Raises InputError where the logits hold NaN,
    or a target is no token of the model.
    """
    return sums_at(logits[looked_at(targets, rows).to(logits.device)], targets, rows)


def looked_at(targets: Targets, rows: Int[Tensor, " some"]) -> Bool[Tensor, "some pos"]:
    """True at the positions of some sequences at which any target is looked for."""
    return torch.stack([where[rows.to(where.device)] for _, where in targets.values()]).any(0)


def sums_at(
    logits: Float[Tensor, "place d_vocab"], targets: Targets, rows: Int[Tensor, " some"]
) -> Float[Tensor, "target score"]:
    """The same from the logits at the places of `looked_at` only."""
    masks = {name: where[rows.to(where.device)].to(logits.device) for name, (_, where) in targets.items()}
    read = looked_at(targets, rows).to(logits.device)
    log_probs = normalised(logits)
    sums = []
    for name, where in masks.items():
        tokens, chosen = targets[name][0][rows.to(targets[name][0].device)].to(logits.device)[where], where[read]
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < logits.shape[-1]:
            raise InputError(f"tokens of target {name} must be from 0 to {logits.shape[-1] - 1}, those of the model")
        at = metrics.at_target(log_probs[chosen], tokens)
        right = metrics.correct(log_probs[chosen], tokens)
        sums.append(torch.stack((at.exp().sum(), at.sum(), right.double().sum())))
    return torch.stack(sums)


def counts(targets: Targets) -> Int[Tensor, " target"]:
    """At how many positions each is looked for."""
    return torch.stack([where.sum().cpu() for _, where in targets.values()])
