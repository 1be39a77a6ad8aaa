"""Elementary measures on predictions: they take logits or probabilities and keep every leading axis.

None of them moves when a constant is added to the logits.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def cross_entropy(logits: Float[Tensor, "*rows d_vocab"], targets: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """-log p(target), in nats."""
    return -at_target(logits.log_softmax(-1), targets)


def at_target(values: Float[Tensor, "*rows d_vocab"], targets: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """The value of the target token."""
    return values.gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def correct(logits: Float[Tensor, "*rows d_vocab"], targets: Int[Tensor, "*rows"]) -> Bool[Tensor, "*rows"]:
    """Whether the most probable token is the target; of equals the lowest token counts as the most probable."""
    return logits.argmax(-1) == targets


def kl_divergence(
    reference: Float[Tensor, "*rows d_vocab"], log_probs: Float[Tensor, "*rows d_vocab"]
) -> Float[Tensor, "*rows"]:
    """KL(reference || model) in nats.

    Infinite where the model excludes what the reference allows, NaN where the reference is.
    """
    return (torch.special.xlogy(reference, reference) - _product(reference, log_probs)).sum(-1)


def _product(weight: Tensor, log: Tensor) -> Tensor:
    """Weight * log with 0 * -inf = 0."""
    return torch.where(weight == 0, torch.zeros_like(weight), weight * log)
