"""A mean over systems, such as configurations or models, with the range in which another one of their kind would lie.

Every system has an effect with an error of its own, and systems differ beyond these (random effects). Their variance
follows Paule and Mandel's iteration (1982), the interval of the mean Hartung and Knapp's (2001), which takes as its
error how far systems really scatter. The prediction interval is that of Higgins, Thompson & Spiegelhalter (2009):
mean ± t(k - 2) · sqrt(between² + error²).

Language models are asked the same questions, which move all of them together. The errors that questions give are then
no errors between models, so the scatter s of the models alone counts: mean ± t(k - 1) · s · sqrt(1 + 1/k) is where
another model lies on the same questions, whatever part of s is noise.

Shown beside a verdict, which it does not change. *Does not show* more than the systems are a sample of: configurations
or models that somebody chose are no random draw. Other questions may move all models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects

from mnemoscope.claims.intervals import CONFIDENCE, Interval
from mnemoscope.core.errors import InputError

MIN_SYSTEMS = 3
"""Fewer systems leave no degree of freedom for another one."""


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """The mean over `n` systems, its interval, the standard deviation `between` them, and the interval of another."""

    n: int
    mean: float
    interval: Interval
    between: float
    prediction: Interval

    def __str__(self) -> str:
        """The numbers in a sentence."""
        return (
            f"Over {self.n} of them the mean effect is {self.mean:.3g} (95 %: {self.interval}), with a standard "
            f"deviation of {self.between:.3g} between them; for another one {self.prediction} is expected."
        )


def pool_by_scatter(effects: Sequence[float]) -> Pooled:
    """The mean of systems that were measured on the same prompts, by their scatter alone.

    Raises InputError for fewer than three systems, or an effect that is not finite.
    """
    values, n = np.asarray(effects, dtype=float), len(effects)
    if n < MIN_SYSTEMS or not np.isfinite(values).all():
        raise InputError(f"effects must be finite numbers, of {MIN_SYSTEMS} systems or more; got {list(effects)}")
    mean, scatter = float(values.mean()), float(values.std(ddof=1))
    reach = float(stats.t.isf((1 - CONFIDENCE) / 2, n - 1)) * scatter
    of_mean, of_another = reach / n**0.5, reach * (1 + 1 / n) ** 0.5
    return Pooled(
        n=n,
        mean=mean,
        interval=Interval(low=mean - of_mean, high=mean + of_mean),
        between=scatter,
        prediction=Interval(low=mean - of_another, high=mean + of_another),
    )


def pool(effects: Sequence[float], errors: Sequence[float]) -> Pooled:
    """The random-effects mean of systems with these effects and standard errors.

    Raises InputError for fewer than three systems, or an error that is not positive.
    """
    n = len(effects)
    if n < MIN_SYSTEMS or len(errors) != n:
        raise InputError(
            f"effects must be of {MIN_SYSTEMS} systems or more, with an error each; got {n}, {len(errors)}"
        )
    if not all(np.isfinite(error) and error > 0 for error in errors):
        raise InputError(f"errors must be positive numbers; got {', '.join(f'{error:g}' for error in errors)}")
    found: Any = combine_effects(
        np.asarray(effects, dtype=float), np.square(errors), method_re="iterated", use_t=True, alpha=1 - CONFIDENCE
    )
    low, high = map(float, found.conf_int()[3])  # that of Hartung and Knapp
    mean, between = float(found.mean_effect_re), float(max(found.tau2, 0.0)) ** 0.5
    error = (high - low) / 2 / float(stats.t.isf((1 - CONFIDENCE) / 2, n - 1))
    reach = float(stats.t.isf((1 - CONFIDENCE) / 2, n - 2)) * (between**2 + error**2) ** 0.5
    return Pooled(
        n=n,
        mean=mean,
        interval=Interval(low=low, high=high),
        between=between,
        prediction=Interval(low=mean - reach, high=mean + reach),
    )
