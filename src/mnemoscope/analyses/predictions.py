r"""Answers token by token: the likeliest guesses on one sequence, and the scores of named tokens on many.

`predict`: after every token of one sequence the probability of the token that follows, the most probable tokens, and,
if an exact predictor :math:`q` of the task is named, the same of it and :math:`KL(q \| p)` in nats. It does not show
what the model answers on other sequences.

`score_sums`: mean probability, log-probability and accuracy of *targets*. A target is a token per position and the
positions that count: the next token where a skill is tested, or any other token that one wants to follow, such as one
that a model confuses with the right one. Every position counts alike, whatever the weight of its sequence.
Log-probabilities are in nats and may be minus infinity.

Neither shows how the model comes to its answers: that takes a change of the model between two such readings.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.analyses.forward import log_probs, to_log_probs
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.protocols import ModelLike, Task, n_outputs, resolve_model
from mnemoscope.core.skills import Skills, check_skills

UNKNOWN = -1
"""In the place of a following token that is not given."""
N_GUESSES = 3
"""Guesses at a position, unless told otherwise."""


def predict(
    model: ModelLike,
    task: Task,
    batch: Batch,
    *,
    reference: str | None = None,
    everywhere: bool = False,
    n: int = N_GUESSES,
) -> xr.Dataset:
    """The likeliest tokens, or classes, after every position of one sequence.

    A last position of the sequence that is not scored is taken as one whose following token is not given. `reference`
    is an exact predictor of the task; none: the model stands alone. With `everywhere` it is read at positions that are
    not scored too: where it does not look at what follows. Of fewer than `n` outputs all are guesses.

    Returns:
        Over pos: `token`, `following` (-1 where it is not given) and `p_following` (NaN there). Over (pos, rank):
        `guess` (token) and `p_guess`. With a reference also `ideal_p_following`, `ideal_guess`, `ideal_p_guess` and
        `kl`, NaN (guesses: -1) where it is undefined.

    Raises:
        InputError: The batch holds several sequences, `n` is out of range, the task has no such reference, or the
            model is too small.

    >>> guesses = ms.predict(model, task, batch.select(slice(1)), n=1)
    >>> guesses.guess.sel(pos=8).values, guesses.p_guess.sel(pos=8).values.round(1)
    (array([5]), array([1.]))
    """
    model = resolve_model(model, batch=batch)
    if len(batch) != 1:
        raise InputError(f"predictions are of one sequence at a time; got {len(batch)}")
    in_range("the number of guesses", n, 1, max(task.d_vocab, n_outputs(task), N_GUESSES))
    predicted = log_probs(model, task, batch)[0]
    n = min(n, predicted.shape[-1])
    following = batch.targets[0].clone()
    if not batch.scored[0, -1]:
        following[-1] = UNKNOWN
    found = {"token": ("pos", batch.inputs[0].tolist()), "following": ("pos", following.tolist())}
    found |= _guesses(predicted.exp(), following, n, "")
    if reference is not None:
        given = replace(batch, scored=torch.ones_like(batch.scored)) if everywhere else batch
        exact = task.reference(given, reference)[0]
        found |= _guesses(exact, following, n, "ideal_")
        found["kl"] = ("pos", metrics.kl_divergence(exact, predicted).tolist())
    where = list(range(len(following)))
    coords = {"pos": where, "rank": list(range(1, n + 1)), **batch.labels(pos=where)}
    attrs = {"reference": reference or "", "kl_unit": "nats", "task": repr(task)}
    return xr.Dataset(found, coords=coords, attrs=attrs)


def _guesses(probabilities: Float[Tensor, "pos d_vocab"], following: Tensor, n: int, prefix: str) -> dict:
    """The most probable tokens, and the probability of the one that follows."""
    undefined = probabilities.isnan().any(-1)
    top = probabilities.topk(n, -1)
    guesses = top.indices.masked_fill(undefined[:, None], UNKNOWN)
    right = metrics.at_target(probabilities, following.clamp(min=0)).masked_fill(following == UNKNOWN, torch.nan)
    return {
        f"{prefix}guess": (("pos", "rank"), guesses.tolist()),
        f"{prefix}p_guess": (("pos", "rank"), top.values.masked_fill(undefined[:, None], torch.nan).tolist()),
        f"{prefix}p_following": ("pos", right.tolist()),
    }


TokenTargets = Mapping[str, tuple[Int[Tensor, "batch pos"], Bool[Tensor, "batch pos"]]]
"""Name to the token that is looked for at every position, and where it is looked for."""

TARGET_SCORES = ("probability", "log_prob", "accuracy")
"""In the order of `score_sums`; accuracy: the share of positions at which the token is the most probable one."""


def skill_targets(batch: Batch, skills: Skills) -> TokenTargets:
    """The next token where each skill is tested."""
    return {name: (batch.targets, where) for name, where in skills.items()}


def check_targets(batch: Batch, targets: TokenTargets) -> None:
    """Refuse targets that do not fit a batch.

    Raises InputError where there are none, a shape differs from that of the batch, or a target is looked for nowhere.

    >>> ms.analyses.check_targets(batch, {"answer": (batch.targets, batch.scored)})
    """
    if not targets:
        raise InputError("targets must name at least one token to look for; got none")
    check_skills(batch, {name: where for name, (_, where) in targets.items()})
    for name, (tokens, _) in targets.items():
        if tokens.shape != batch.inputs.shape:
            shapes = f"{tuple(batch.inputs.shape)}; got {tuple(tokens.shape)}"
            raise InputError(f"tokens of target {name} must have the shape (batch, pos) of the batch, {shapes}")


def score_sums(
    logits: Float[Tensor, "some pos d_vocab"], targets: TokenTargets, rows: Int[Tensor, " some"]
) -> Float[Tensor, "target score"]:
    """Sums of the scores over the positions of each target, in float64.

    `logits` are of some `rows` of a batch, `targets` of the whole batch. Raises InputError where the logits hold NaN,
    or a target is no token of the model.

    >>> targets = {"answer": (batch.targets, batch.scored)}
    >>> ms.analyses.score_sums(model(batch.inputs), targets, torch.arange(len(batch))).shape
    torch.Size([1, 3])
    """
    return sum_scores_at(logits[places_of_targets(targets, rows).to(logits.device)], targets, rows)


def places_of_targets(targets: TokenTargets, rows: Int[Tensor, " some"]) -> Bool[Tensor, "some pos"]:
    """True at the positions of some sequences at which any target is looked for."""
    return torch.stack([where[rows.to(where.device)] for _, where in targets.values()]).any(0)


def sum_scores_at(
    logits: Float[Tensor, "place d_vocab"], targets: TokenTargets, rows: Int[Tensor, " some"]
) -> Float[Tensor, "target score"]:
    """The same from the logits at the places of `looked_at` only."""
    masks = {name: where[rows.to(where.device)].to(logits.device) for name, (_, where) in targets.items()}
    read = places_of_targets(targets, rows).to(logits.device)
    log_probs = to_log_probs(logits)
    sums = []
    for name, where in masks.items():
        tokens, chosen = targets[name][0][rows.to(targets[name][0].device)].to(logits.device)[where], where[read]
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < logits.shape[-1]:
            raise InputError(f"tokens of target {name} must be from 0 to {logits.shape[-1] - 1}, those of the model")
        at = metrics.at_target(log_probs[chosen], tokens)
        right = metrics.is_correct(log_probs[chosen], tokens)
        sums.append(torch.stack((at.exp().sum(), at.sum(), right.double().sum())))
    return torch.stack(sums)


def target_counts(targets: TokenTargets) -> Int[Tensor, " target"]:
    """At how many positions each is looked for.

    >>> ms.analyses.target_counts({"answer": (batch.targets, batch.scored)}).tolist()
    [320]
    """
    return torch.stack([where.sum().cpu() for _, where in targets.values()])
