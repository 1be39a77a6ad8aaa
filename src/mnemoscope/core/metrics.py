"""Elementary measures on predictions: they take logits or probabilities and keep every leading axis.

None of them moves when a constant is added to the logits. A `Metric` is such a measure as a value, for analyses that
let the user choose.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core.errors import InputError, one_of


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


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number read from logits at every position, by name.

    Attributes:
        name: In results.
        unit: Of the values.
        function: Takes logits `*rows d_vocab`, answer and foil `*rows` and gives one value per row; with
            `against_clean` the logits of the clean prompt `*rows d_vocab` come fourth. Must not move when a constant is
            added to the logits (`check_metric`).
        higher_is: Whether higher values mean a `better` answer or a `worse` one.
        against_clean: Whether it compares with the clean prompt's logits.
    """

    name: str
    unit: str
    function: Callable[..., Tensor]
    higher_is: Literal["better", "worse"] = "better"
    against_clean: bool = False

    def __post_init__(self) -> None:
        one_of("higher_is of a metric", self.higher_is, ("better", "worse"))

    def __call__(
        self,
        logits: Float[Tensor, "*rows d_vocab"],
        answer: Int[Tensor, "*rows"],
        foil: Int[Tensor, "*rows"],
        clean: Float[Tensor, "*rows d_vocab"],
    ) -> Tensor:
        """The value of every row, as the function gives it."""
        return self.function(logits, answer, foil, *((clean,) if self.against_clean else ()))


def logit_difference(
    logits: Float[Tensor, "*rows d_vocab"], answer: Int[Tensor, "*rows"], foil: Int[Tensor, "*rows"]
) -> Float[Tensor, "*rows"]:
    """Logit of the answer minus that of the foil: the logarithm of their odds."""
    return at_target(logits, answer) - at_target(logits, foil)


def log_probability(
    logits: Float[Tensor, "*rows d_vocab"], answer: Int[Tensor, "*rows"], foil: Int[Tensor, "*rows"]
) -> Float[Tensor, "*rows"]:
    """Log p(answer), in nats."""
    return -cross_entropy(logits, answer)


def probability(
    logits: Float[Tensor, "*rows d_vocab"], answer: Int[Tensor, "*rows"], foil: Int[Tensor, "*rows"]
) -> Float[Tensor, "*rows"]:
    """p(answer)."""
    return log_probability(logits, answer, foil).exp()


def accuracy(
    logits: Float[Tensor, "*rows d_vocab"], answer: Int[Tensor, "*rows"], foil: Int[Tensor, "*rows"]
) -> Float[Tensor, "*rows"]:
    """1 where the answer is the most probable token, 0 elsewhere."""
    return correct(logits, answer).to(logits.dtype)


def divergence(
    logits: Float[Tensor, "*rows d_vocab"],
    answer: Int[Tensor, "*rows"],
    foil: Int[Tensor, "*rows"],
    clean: Float[Tensor, "*rows d_vocab"],
) -> Float[Tensor, "*rows"]:
    """KL(clean || these logits), in nats."""
    return kl_divergence(clean.softmax(-1), logits.log_softmax(-1))


LOGIT_DIFF = Metric(name="logit_diff", unit="logits", function=logit_difference)
LOG_PROB = Metric(name="log_prob", unit="nats", function=log_probability)
PROB = Metric(name="prob", unit="probability", function=probability)
ACCURACY = Metric(name="accuracy", unit="share", function=accuracy)
KL = Metric(name="kl", unit="nats", function=divergence, higher_is="worse", against_clean=True)
METRICS: tuple[Metric, ...] = (LOGIT_DIFF, LOG_PROB, PROB, ACCURACY, KL)
"""Answer against foil in logits; log-probability, probability and accuracy of the answer; divergence from clean."""

_INVARIANCE = 1e-4


def check_metric(
    metric: Metric,
    logits: Float[Tensor, "*rows d_vocab"],
    answer: Int[Tensor, "*rows"],
    foil: Int[Tensor, "*rows"],
    *,
    generator: torch.Generator,
) -> None:
    """Refuse a metric that moves when a constant is added to the logits of a row, or gives no number a row.

    A softmax takes such a constant away, so what moves with it is no statement about the prediction.

    Args:
        metric: What to try.
        logits: Of the clean prompts; taken in float64.
        answer: The right token.
        foil: The token that is right on the corrupted prompts.
        generator: Draws the constants.

    Raises:
        InputError: The values move, are NaN, or are not one per row.
    """
    logits = logits.double()
    noise = torch.randn(logits.shape[:-1], generator=generator, device=generator.device).to(logits)
    before, after = (metric(x, answer, foil, logits) for x in (logits, logits + 10 * noise.unsqueeze(-1)))
    if before.shape != answer.shape:
        raise InputError(
            f"metric {metric.name} must give one value per position, shape {tuple(answer.shape)}; it gave shape "
            f"{tuple(before.shape)}; do not average inside it"
        )
    if before.isnan().any():
        raise InputError(f"metric {metric.name} is NaN on clean prompts; change the metric or choose other positions")
    if not torch.allclose(before.double(), after.double(), rtol=_INVARIANCE, atol=_INVARIANCE):
        raise InputError(
            f"metric {metric.name} moves when a constant is added to the logits, so it does not measure the "
            "prediction; take differences of logits, or probabilities"
        )
