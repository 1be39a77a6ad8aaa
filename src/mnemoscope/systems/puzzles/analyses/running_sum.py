"""Measurements on models that say the sign of a running sum: what attention writes, and what the MLP adds.

The *direction* is the one along which the outputs of the head differ most between tokens: the first right singular
vector of W_E W_V W_O, its mean over tokens taken out, turned so that larger values lie higher.

*Shows* what the head holds along this direction, and what the model says without its neurons. *Does not show* how the
neurons place their thresholds.
"""

from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope import Batch, InputError, ParamSite, Site, Subject, Zero, generator, run_with
from mnemoscope.analyses import effective_weights, patterns, weight_matrix
from mnemoscope.core import memoize, one_of
from mnemoscope.systems.puzzles.tasks.running_sum import RunningSum

N_SEQUENCES = 2048
NEGATIVE, ZERO, POSITIVE = range(3)
Removed = Literal["post", "mlp_out"]


def task_of(subject: Subject) -> RunningSum:
    """The task of a subject; an `InputError` unless sums are told apart by sign, by one head and an MLP."""
    if not isinstance(subject.task, RunningSum):
        raise InputError(f"the measure is about running sums; got a model of {subject.task.name}")
    cfg = subject.model.cfg
    if (cfg.n_layers, cfg.n_heads, cfg.attn_only) != (1, 1, False):
        raise InputError(
            "the model must have one layer of one head and an MLP; take the size of the preset running-sum"
        )
    return subject.task


@memoize
def sequences(subject: Subject) -> Batch:
    """Fresh sequences from the stream `running sums` of the subject's seed."""
    return task_of(subject).sample(N_SEQUENCES, split="test", generator=generator(subject.seed, "running sums"))


@torch.no_grad()
def accuracy(subject: Subject) -> float:
    """The share of right answers, of the class that is answered worst."""
    batch = sequences(subject)
    right = subject.model(batch.inputs).argmax(-1) == batch.targets
    return min(float(right[mask].double().mean()) for mask in task_of(subject).skills(batch).values())


@torch.no_grad()
def written_direction(
    subject: Subject,
) -> tuple[Float[Tensor, " singular"], Float[Tensor, " d_model"], Float[Tensor, " token"]]:
    """Singular values of what the head writes for each token, the direction, and the place of each token along it."""
    weights, task = effective_weights(subject.model), task_of(subject)
    written = weights.W_E @ weights.W_V[0, 0] @ weights.W_O[0, 0]
    written = written - written.mean(0)
    _, singular, right = torch.linalg.svd(written, full_matrices=False)
    tokens = torch.arange(task.d_vocab)
    values = torch.where(tokens > task.largest, tokens - task.d_vocab, tokens).double()
    turn = torch.sign(values @ (written @ right[0]))
    return singular, turn * right[0], turn * (written @ right[0])


@torch.no_grad()
def mean_or_sum(subject: Subject) -> dict[str, float]:
    """The parts of the claim that a uniform head of rank one writes the running mean.

    `uneven`: the total variation distance between attention and the uniform pattern, mean over the positions from the
    second on. `rank`: the share of the first singular value of what the head writes, squared. `mean` and `sum`: the
    squared correlation of what it writes along the direction with the running mean and sum, over all positions.
    `advantage`: the difference. `cos positive`, `cos negative`: cosines of the direction with the unembedding of the
    classes; `cos both`: that of these two.
    """
    batch = sequences(subject)
    pattern = patterns(subject.model, batch)[:, 0, 0].double()
    n_pos = pattern.shape[-1]
    even = torch.ones(n_pos, n_pos, dtype=torch.double).tril()
    uneven = (pattern - even / even.sum(-1, keepdim=True)).abs().sum(-1)[:, 1:] / 2
    singular, direction, places = written_direction(subject)
    along = (pattern @ places[batch.inputs][..., None])[..., 0].flatten()
    squared = {
        name: float(np.corrcoef(along, batch.latents[name].double().flatten())[0, 1] ** 2) for name in ("mean", "sum")
    }
    unembedding = effective_weights(subject.model).W_U.T
    cosine = torch.nn.functional.cosine_similarity
    return {
        "uneven": float(uneven.mean()),
        "rank": float(singular[0] ** 2 / (singular**2).sum()),
        **squared,
        "advantage": squared["mean"] - squared["sum"],
        "cos positive": float(cosine(direction, unembedding[POSITIVE], 0)),
        "cos negative": float(cosine(direction, unembedding[NEGATIVE], 0)),
        "cos both": float(cosine(unembedding[POSITIVE], unembedding[NEGATIVE], 0)),
    }


@torch.no_grad()
def without_neurons(subject: Subject, *, removed: Removed = "post") -> dict[str, float]:
    """The answers without the MLP, and the sign that each neuron speaks for.

    `zero`: the share of answers that are zero when the neurons are silent. `signs`: the accuracy then where the sum is
    not zero. `loss` and `right`: the cross-entropy and the mean probability of the right class then. `one_sign`: the
    share of the activity of a neuron that falls to sums of the sign for which it raises the logit over the opposite
    one, mean over neurons by the size of their effect; 0 where all are silent. With `removed` mlp_out the bias of the
    MLP is left out too.
    """
    one_of("removed", removed, get_args(Removed))
    task, batch = task_of(subject), sequences(subject)
    logits = run_with(subject.model, batch, [Zero(site=Site(kind=removed, layer=0))]).double()
    right = logits.log_softmax(-1).gather(-1, batch.targets[..., None])
    guesses, signed = logits.argmax(-1), batch.targets != ZERO
    _, cache = subject.model.run_with_cache(batch.inputs)
    activity = cache["blocks.0.mlp.hook_post"].double()
    out = weight_matrix(subject.model, ParamSite(name="W_out", layer=0))
    read = weight_matrix(subject.model, ParamSite(name="W_U"))
    effect = out.double() @ read.double()
    lean = effect[:, POSITIVE] - effect[:, NEGATIVE]
    own = torch.where(lean > 0, batch.latents["sign"][..., None] > 0, batch.latents["sign"][..., None] < 0)
    total = activity.sum((0, 1))
    share = (activity * own).sum((0, 1)) / total.clamp(min=1e-12)
    size = total * lean.abs()
    assert task.classes[ZERO] == "zero"
    return {
        "zero": float((guesses == ZERO).double().mean()),
        "signs": float((guesses == batch.targets)[signed].double().mean()),
        "loss": float(-right.mean()),
        "right": float(right.exp().mean()),
        "one_sign": float((share * size).sum() / size.sum().clamp(min=1e-12)),
    }
