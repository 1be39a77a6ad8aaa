"""Populations whose truth is known, with the outcome that would be wrong, or right: the table in docs/verdicts.md."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from mnemoscope.claims.claim import Claim
from mnemoscope.claims.criterion import Criterion
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.judge import judge
from tests.claims.trials import MARGIN, along_seeds, make_claim

PROMISED = 0.01
"""Largest rate of wrong decisions of one verdict, in either direction."""
Draw = Callable[[np.random.Generator], Any]


@dataclass(frozen=True, kw_only=True)
class Population:
    """Evidence that can be drawn again and again, and the outcomes to count."""

    draw: Draw
    claim: Claim
    outcomes: tuple[str, ...] = ("SUPPORTED",)
    fields: dict[str, Any] = field(default_factory=dict)

    def rate(self, n_trials: int, *, seed: int = 0) -> float:
        """The share of trials with one of the outcomes."""
        rng, found = np.random.default_rng(seed), 0
        for trial in range(n_trials):
            drawn = self.draw(rng)
            effects = along_seeds(drawn) if isinstance(drawn, np.ndarray) else drawn
            verdict = judge(self.claim, Evidence(effects=effects, **self.fields), seed=trial, n_resamples=299)
            found += verdict.outcome in self.outcomes
        return found / n_trials


def answered(accuracy: float, n_prompts: int, n: int = 16) -> Draw:
    """Prompts that are right or wrong."""
    return lambda rng: (rng.random((n, n_prompts)) < accuracy).astype(float)


def saturating(rng: np.random.Generator) -> np.ndarray:
    """Probabilities near 1, but for one prompt in ten; their mean is .93."""
    return np.where(rng.random((16, 5)) < 0.1, 0.3, 1 - 1e-3 * rng.random((16, 5)))


def clustered(rng: np.random.Generator) -> np.ndarray:
    """24 sources of five prompts side by side, not named; all replicates lie at the margin."""
    return MARGIN + rng.normal(size=(16, 24)).repeat(5, 1) + 0.1 * rng.normal(size=(16, 120))


def half_at_margin(rng: np.random.Generator) -> np.ndarray:
    """Half of the replicates clear the margin by far and half lie at it."""
    return MARGIN + np.where(rng.random((16, 1)) < 0.5, 9.0, 0.0) + rng.normal(size=(16, 20))


def kinds(rng: np.random.Generator) -> np.ndarray:
    """One replicate in sixteen has -15 and the others have 1; their mean is 0."""
    return np.where(rng.random(16) < 1 / 16, -15.0, 1.0) + 0.1 * rng.uniform(-1, 1, 16)


def lognormal(rng: np.random.Generator) -> np.ndarray:
    """Effects whose mean is 1."""
    return rng.lognormal(-0.5, 1, 16)


def kept_kinds(rng: np.random.Generator) -> np.ndarray:
    """Accuracies of 0 and 1 whose mean is .8."""
    return (rng.random(16) < 0.8).astype(float)


def parts_at_margin(*shape: int) -> Draw:
    """Four parts that are alike in all replicates and lie at their margins; what is seen beyond these is noise."""
    dims = ("seed", "prompt")[: len(shape)]
    seeds = {"seed": np.arange(shape[0])}
    return lambda rng: xr.Dataset({n: (dims, MARGIN + rng.normal(size=shape)) for n in "abcd"}, coords=seeds)


def parts_in_turn(rng: np.random.Generator) -> xr.Dataset:
    """Four parts, one of which fails in each replicate."""
    failing = rng.permutation(32) % 4
    values = MARGIN + 0.5 - (failing == np.arange(4)[:, None]) + 0.1 * rng.normal(size=(4, 32))
    return xr.Dataset({n: ("seed", row) for n, row in zip("abcd", values, strict=True)}, coords={"seed": np.arange(32)})


def grouped(correlation: float, n_groups: int, size: int) -> Draw:
    """Replicates at the margin in groups that share something."""

    def draw(rng: np.random.Generator) -> xr.DataArray:
        group = np.arange(n_groups).repeat(size)
        common, own = rng.normal(size=n_groups)[group], rng.normal(size=len(group))
        values = MARGIN + correlation**0.5 * common + (1 - correlation) ** 0.5 * own
        return along_seeds(values).assign_coords(group=("seed", group))

    return draw


FOUR = tuple(Criterion(name=name, quantifier="most", margin=MARGIN) for name in "abcd")
OWN, SHARED = {"prompts": "own"}, {"prompts": "shared"}
BOTH = ("SUPPORTED", "REFUTED")
NEARLY = {"margin": 0.99}

WRONG = {
    "exists: five 0/1 prompts, accuracy .95, claim > .99": Population(
        draw=answered(0.95, 5), claim=make_claim("exists", **NEARLY), fields=OWN
    ),
    "exists: five saturating probabilities, mean .93, claim > .99": Population(
        draw=saturating, claim=make_claim("exists", **NEARLY), fields=OWN
    ),
    "exists: 24 unnamed sources of five prompts": Population(draw=clustered, claim=make_claim("exists"), fields=OWN),
    **{
        f"most: {n_prompts} 0/1 prompts, accuracy .95, claim > .99, {n} seeds": Population(
            draw=answered(0.95, n_prompts, n), claim=make_claim("most", **NEARLY), fields=OWN
        )
        for n in (16, 32)
        for n_prompts in (5, 10, 20)
    },
    "most: the same with five prompts that all seeds share": Population(
        draw=lambda rng: (rng.random((1, 5)) < 0.95).repeat(16, 0).astype(float),
        claim=make_claim("most", **NEARLY),
        fields=SHARED,
    ),
    "most: half of the seeds clear, half lie at the margin": Population(
        draw=half_at_margin, claim=make_claim("most"), fields=OWN
    ),
    "mean: lognormal, no bounds": Population(draw=lognormal, claim=make_claim("mean", margin=1.0), outcomes=BOTH),
    "mean: lognormal cut at 20, bounds 0 and 20": Population(
        draw=lambda rng: np.minimum(lognormal(rng), 20), claim=make_claim("mean", margin=0.996, bounds=(0, 20)),
        outcomes=BOTH,
    ),
    "mean: kinds of 15 to 1, no bounds": Population(draw=kinds, claim=make_claim("mean", margin=0.0)),
    "mean: kinds of 15 to 1, bounds -15.1 and 1.1": Population(
        draw=kinds, claim=make_claim("mean", margin=0.0, bounds=(-15.1, 1.1))
    ),
    "mean: accuracies of 0 and 1": Population(
        draw=kept_kinds, claim=make_claim("mean", margin=0.8, unit="accuracy", bounds=(0, 1)), outcomes=BOTH
    ),
    "equivalence: kinds of 15 to 1 with a mean at the margin": Population(
        draw=lambda rng: (kinds(rng) - 1) / 16, claim=make_claim("equivalence", margin=1 / 16)
    ),
    "equivalence: the same, accuracies": Population(
        draw=lambda rng: -0.95 * (rng.random(16) < 1 / 16) - 0.05 * rng.random(16),
        claim=make_claim("equivalence", margin=0.95 / 16 + 0.025, unit="accuracy"),
    ),
    "four parts at their margins, errors not known": Population(
        draw=parts_at_margin(32), claim=make_claim(None, parts=FOUR), outcomes=BOTH
    ),
    "four parts at their margins, 20 prompts": Population(
        draw=parts_at_margin(32, 20), claim=make_claim(None, parts=FOUR), outcomes=BOTH, fields=OWN
    ),
    **{
        f"most: {n_groups} groups of {size} seeds, correlation .{10 * correlation:.0f}": Population(
            draw=grouped(correlation, n_groups, size), claim=make_claim(), fields={"prompts": "enumerated"}
        )
        for n_groups, size in ((4, 4), (16, 2))
        for correlation in (0.3, 0.8)
    },
}  # fmt: skip
"""Populations of which the claim is false, or exactly at its margin."""

RIGHT = {
    "most: effects two standard deviations above the margin": Population(
        draw=lambda rng: rng.normal(MARGIN + 2, 1, 16), claim=make_claim()
    ),
    "mean: the same, bounds of three standard deviations": Population(
        draw=lambda rng: np.clip(rng.normal(MARGIN + 2, 1, 16), MARGIN - 1, MARGIN + 5),
        claim=make_claim("mean", bounds=(MARGIN - 1, MARGIN + 5)),
    ),
    "most: 512 0/1 prompts, accuracy .95, claim > .9": Population(
        draw=answered(0.95, 512), claim=make_claim("most", margin=0.9), fields=OWN
    ),
    "exists: 512 0/1 prompts, accuracy 1, claim > .97": Population(
        draw=answered(1, 512), claim=make_claim("exists", margin=0.97), fields=OWN
    ),
    "four parts that fail in turn, 32 seeds": Population(
        draw=parts_in_turn, claim=make_claim(None, parts=FOUR), outcomes=("REFUTED",)
    ),
    "most: 16 groups of 2 seeds, correlation .3": Population(
        draw=lambda rng: grouped(0.3, 16, 2)(rng) + 2, claim=make_claim(), fields={"prompts": "enumerated"}
    ),
}
"""Populations of which the claim is decided as it is meant to be."""
