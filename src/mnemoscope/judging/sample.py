"""Effects as plain numbers: the replicates that a claim is judged on, and how sure each of them is."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy import stats

from mnemoscope.judging.criteria import Criterion, beyond

Prompts = Literal["own", "shared", "enumerated"]
"""Drawn for each replicate; drawn once for all; all that there are."""

_SHIFT = 0.005


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """One effect in the replicates that count.

    Attributes:
        values: Per replicate and prompt; a single column where effects come without prompts.
        labels: Of the replicates, in words: seed 7.
        prompts: How the prompts came about; None: effects come without, and their own error is not known.
    """

    values: Float[np.ndarray, "replicate prompt"]
    labels: tuple[str, ...]
    prompts: Prompts | None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def effects(self) -> Float[np.ndarray, " replicate"]:
        """Mean over prompts."""
        return self.values.mean(1)

    @property
    def shared_prompt_error(self) -> float:
        """How far shared prompts may have moved all effects together, one-sided at 0.5 %; 0 for other prompts.

        Counting replicates takes them to be independent, which such a shift is not: it could carry all over a margin.
        """
        if self.prompts != "shared" or not np.isfinite(self.values).all():
            return 0.0
        n = self.values.shape[1]
        return float(stats.t.isf(_SHIFT, n - 1) * self.values.mean(0).std(ddof=1) / n**0.5)

    def p_clears(self, part: Criterion) -> Float[np.ndarray, " replicate"]:
        """Per replicate, p of its own against "its effect does not clear the margin".

        By t over its prompts; 0 or 1 where they are enumerated; 1 where the error of an effect is not known.
        """
        match part.direction:
            case "above":
                return self._p_above(part.margin)
            case "below":
                return self._p_below(part.margin)
            case "within":
                return np.maximum(self._p_above(-part.margin), self._p_below(part.margin))

    def p_fails(self, part: Criterion) -> Float[np.ndarray, " replicate"]:
        """Per replicate, p of its own against "its effect does clear the margin, or lies at it"."""
        match part.direction:
            case "above":
                return self._p_below(part.margin)
            case "below":
                return self._p_above(part.margin)
            case "within":
                # Beyond either end: two tests, so p doubles.
                return np.minimum(1, 2 * np.minimum(self._p_above(part.margin), self._p_below(-part.margin)))

    def _p_above(self, bound: float) -> Float[np.ndarray, " replicate"]:
        return self._p(beyond(self.effects, bound))

    def _p_below(self, bound: float) -> Float[np.ndarray, " replicate"]:
        return self._p(-beyond(self.effects, bound))

    def _p(self, distance: Float[np.ndarray, " replicate"]) -> Float[np.ndarray, " replicate"]:
        if self.prompts is None:
            return np.ones(len(self))
        n = self.values.shape[1]
        with np.errstate(invalid="ignore"):  # infinite effects have no spread, and need none
            error = np.zeros(len(self)) if self.prompts == "enumerated" else self.values.std(1, ddof=1) / n**0.5
        return np.where(distance == 0, 1.0, stats.t.sf(signed_ratio(distance, error), max(n - 1, 1)))


def signed_ratio(distance: Float[np.ndarray, "*shape"], error: Float[np.ndarray, "*#shape"]) -> np.ndarray:
    """Distance over its standard error; without error infinite on the side of the distance, and 0 / 0 = 0."""
    certain = np.where(distance == 0, 0.0, np.copysign(np.inf, distance))
    return np.divide(distance, error, out=certain, where=error > 0)
