"""Elementary measures on predictions: they take logits, probabilities or vectors and keep every leading axis.

None of those on logits moves when a constant is added to them. A `Metric` is such a measure as a value, for analyses
that let the user choose.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.renamed import old_names

Logits = Float[Tensor, "*rows d_vocab"]
Outputs = Float[Tensor, "*rows d_output"]
"""Logits or vectors."""
Tokens = Int[Tensor, "*rows"]
Values = Float[Tensor, "*rows"]
"""A number for each row."""


def loss(outputs: Outputs, targets: Tokens | Outputs) -> Values:
    """The cross-entropy of logits, in nats, or the mean squared error of vectors."""
    return squared_error(outputs, targets) if targets.is_floating_point() else cross_entropy(outputs, targets)


def squared_error(outputs: Outputs, targets: Outputs) -> Values:
    """Mean over the entries of a vector."""
    return (outputs - targets).square().mean(-1)


def cross_entropy(logits: Logits, targets: Tokens) -> Values:
    """-log p(target), in nats."""
    return -at_target(logits.log_softmax(-1), targets)


def at_target(values: Logits, targets: Tokens) -> Values:
    """The value of the target token."""
    return values.gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def is_correct(logits: Logits, targets: Tokens) -> Bool[Tensor, "*rows"]:
    """True if the most probable token is the target; among equals the lowest token counts as the most probable."""
    return logits.argmax(-1) == targets


def kl_divergence(reference: Logits, log_probs: Logits) -> Values:
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
        function: Takes logits `*rows d_vocab`, answer and foil `*rows` and gives one value per row; with
            `against_clean` the logits of the clean prompt `*rows d_vocab` come fourth. Must not move when a constant is
            added to the logits (`check_metric`).
        higher_is: Whether higher values mean a `better` answer or a `worse` one.
        of: `logits`, or `vectors`: outputs, answers and foils are `*rows d_output`.
    """

    name: str
    unit: str
    function: Callable[..., Tensor]
    higher_is: Literal["better", "worse"] = "better"
    against_clean: bool = False
    of: Literal["logits", "vectors"] = "logits"

    def __post_init__(self) -> None:
        one_of("higher_is of a metric", self.higher_is, ("better", "worse"))
        one_of("what a metric is of", self.of, ("logits", "vectors"))

    def __call__(
        self,
        logits: Outputs,
        answer: Tokens | Outputs,
        foil: Tokens | Outputs,
        clean: Outputs,
    ) -> Tensor:
        """The value of every row, as the function gives it."""
        return self.function(logits, answer, foil, *((clean,) if self.against_clean else ()))

    def on(self, name: str, part: slice) -> "Metric":
        """The same of a part of the vectors, called `<metric> <name>`; InputError for a metric of logits."""
        if self.of != "vectors":
            raise InputError(f"only a metric of vectors is of parts; {self.name} is of {self.of}")
        return replace(self, name=f"{self.name} {name}", function=partial(_on_part, self.function, part))


def logit_difference(logits: Logits, answer: Tokens, foil: Tokens) -> Values:
    """Logit of the answer minus that of the foil: the logarithm of their odds."""
    return at_target(logits, answer) - at_target(logits, foil)


def log_probability(logits: Logits, answer: Tokens, foil: Tokens) -> Values:
    """Log p(answer), in nats."""
    return -cross_entropy(logits, answer)


def probability(logits: Logits, answer: Tokens, foil: Tokens) -> Values:
    """p(answer)."""
    return log_probability(logits, answer, foil).exp()


def accuracy(logits: Logits, answer: Tokens, foil: Tokens) -> Values:
    """1 where the answer is the most probable token, 0 elsewhere."""
    return is_correct(logits, answer).to(logits.dtype)


def divergence(logits: Logits, answer: Tokens, foil: Tokens, clean: Logits) -> Values:
    """KL(clean || these logits), in nats."""
    return kl_divergence(clean.softmax(-1), logits.log_softmax(-1))


def _on_part(function: Callable[..., Tensor], part: slice, *vectors: Outputs) -> Tensor:
    return function(*(vector[..., part] for vector in vectors))


def squared_error_metric(outputs: Outputs, answer: Outputs, foil: Outputs) -> Values:
    """Mean squared error of the answer."""
    return squared_error(outputs, answer)


def error_difference(outputs: Outputs, answer: Outputs, foil: Outputs) -> Values:
    """Mean squared error of the foil minus that of the answer: for vectors what the logit difference is for tokens."""
    return squared_error(outputs, foil) - squared_error(outputs, answer)


def distance(outputs: Outputs, answer: Outputs, foil: Outputs, clean: Outputs) -> Values:
    """Mean squared distance from the clean output."""
    return squared_error(outputs, clean)


LOGIT_DIFF = Metric(name="logit_diff", unit="logits", function=logit_difference)
LOG_PROB = Metric(name="log_prob", unit="nats", function=log_probability)
PROB = Metric(name="prob", unit="probability", function=probability)
ACCURACY = Metric(name="accuracy", unit="share", function=accuracy)
KL = Metric(name="kl", unit="nats", function=divergence, higher_is="worse", against_clean=True)
METRICS: tuple[Metric, ...] = (LOGIT_DIFF, LOG_PROB, PROB, ACCURACY, KL)
"""Answer against foil in logits; log-probability, probability and accuracy of the answer; divergence from clean."""
ERROR_DIFF = Metric(name="error_diff", unit="squared error", function=error_difference, of="vectors")
SQUARED_ERROR = Metric(
    name="squared_error", unit="squared error", function=squared_error_metric, higher_is="worse", of="vectors"
)
DISTANCE = Metric(
    name="distance", unit="squared error", function=distance, higher_is="worse", against_clean=True, of="vectors"
)
VECTOR_METRICS: tuple[Metric, ...] = (ERROR_DIFF, SQUARED_ERROR, DISTANCE)
"""Answer against foil; error of the answer; distance from clean."""


def metrics_for(*, vectors: bool) -> tuple[Metric, ...]:
    """All metrics for outputs of one kind, the one to take where none is named first."""
    return VECTOR_METRICS if vectors else METRICS


_INVARIANCE = 1e-4


def check_metric(
    metric: Metric, logits: Outputs, answer: Tokens | Outputs, foil: Tokens | Outputs, *, generator: torch.Generator
) -> None:
    """Refuse a metric that moves when a constant is added to the logits of a row, or gives no number a row.

    A softmax takes such a constant away, so what moves with it is no statement about the prediction. Of vectors it is.

    The logits of the clean prompts are taken in float64; `foil` is right on the corrupted prompts. Raises InputError
    where the values move, are NaN, or are not one per row; or the metric is of the other kind of output.
    """
    logits, given = logits.double(), "vectors" if answer.is_floating_point() else "logits"
    if metric.of != given:
        allowed = ", ".join(each.name for each in metrics_for(vectors=answer.is_floating_point()))
        raise InputError(f"metric {metric.name} is of {metric.of}, and the model gives {given}; take one of {allowed}")
    noise = torch.randn(logits.shape[:-1], generator=generator, device=generator.device, dtype=torch.float32).to(logits)
    before, after = (metric(x, answer, foil, logits) for x in (logits, logits + 10 * noise.unsqueeze(-1)))
    if before.shape != logits.shape[:-1]:
        raise InputError(
            f"metric {metric.name} must give one value per position, shape {tuple(logits.shape[:-1])}; it gave shape "
            f"{tuple(before.shape)}; do not average inside it"
        )
    if before.isnan().any():
        raise InputError(f"metric {metric.name} is NaN on clean prompts; change the metric or choose other positions")
    if metric.of == "logits" and not torch.allclose(
        before.double(), after.double(), rtol=_INVARIANCE, atol=_INVARIANCE
    ):
        raise InputError(
            f"metric {metric.name} moves when a constant is added to the logits, so it does not measure the "
            "prediction; take differences of logits, or probabilities"
        )


__getattr__ = old_names(__name__)
