"""Predictions of any hooked model on a task's sequences, in chunks of bounded size."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core import metrics
from mnemoscope.core.batch import CHUNK, Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel, Task


def check_fits(model: HookedModel, batch: Batch) -> None:
    """Refuse a model that cannot be run on the batch, or whose weights hold NaN.

    TransformerLens turns NaN in attention into zeros, so that logits do not always tell.

    Raises:
        InputError: Naming what is needed and what the model has.
    """
    for name, weight in model.named_parameters():
        if weight.isnan().any():
            raise InputError(f"the model's weight {name} holds NaN; take an earlier checkpoint")
    if len(batch) == 0:
        raise InputError("the batch holds no sequence; give at least one")
    n_pos, highest = batch.inputs.shape[1], int(max(batch.inputs.max(), batch.targets.max()))
    if int(batch.inputs.min()) < 0:
        raise InputError("the batch holds a token below 0; tokens count from 0")
    if model.cfg.d_vocab <= highest:
        raise InputError(
            f"the model has {model.cfg.d_vocab} tokens and the batch uses token {highest}; take a model with more"
        )
    if model.cfg.n_ctx < n_pos:
        raise InputError(f"the model reads {model.cfg.n_ctx} tokens and the batch has {n_pos}; take a model with more")


@torch.no_grad()
def log_probs(model: HookedModel, task: Task, batch: Batch) -> Float[Tensor, "batch pos d_vocab"]:
    """Log-probabilities of the task's tokens, in float64; a larger vocabulary of the model shares in the
    normalisation.

    Raises:
        InputError: The model is too small for the task, or its logits hold NaN.
    """
    if model.cfg.d_vocab < task.d_vocab:
        raise InputError(
            f"the model has {model.cfg.d_vocab} tokens and the task {task.d_vocab}; take a model with more"
        )
    check_fits(model, batch)
    chunks = [normalised(model(chunk))[..., : task.d_vocab] for chunk in batch.inputs.split(CHUNK)]
    return torch.cat(chunks)


def answer_scores(
    logits: Float[Tensor, "*rows d_vocab"], targets: Int[Tensor, "*rows"]
) -> dict[str, Float[Tensor, "*rows"]]:
    """Whether the most probable token is the target (`accuracy`), and the target's `log_prob` in nats; float64.

    Raises:
        InputError: The logits hold NaN.
    """
    log_probs = normalised(logits)
    return {
        "accuracy": metrics.correct(log_probs, targets).double(),
        "log_prob": metrics.at_target(log_probs, targets),
    }


def normalised(logits: Float[Tensor, "*rows d_vocab"]) -> Float[Tensor, "*rows d_vocab"]:
    """Log-probabilities from logits, in float64.

    Raises:
        InputError: The logits hold NaN.
    """
    result = logits.double().log_softmax(-1)
    if result.isnan().any():
        raise InputError(
            "the model's logits hold NaN or no finite value; check its weights, or take an earlier checkpoint"
        )
    return result
