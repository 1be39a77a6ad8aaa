"""A replication of a claim: what is measured, the published criterion, and the outcome over seeds.

The rule is the published one (docs/verdicts.md) without its refinements: exact binomial tests of a share of one half at
.005 in either direction. There is no Holm correction over headline claims, no error of single effects and no control.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from archives import Run, read_run, seeds_of

LEVEL = 0.005
MIN_SEEDS = 16
Outcome = Literal["SUPPORTED", "REFUTED", "MIXED", "INCONCLUSIVE"]
Quantifier = Literal["most", "every"]


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One published statement: an effect lies above or below a margin, or within it on either side of 0."""

    effect: str
    direction: Literal["above", "below", "within"]
    margin: float
    quantifier: Quantifier = "most"

    def slack(self, value: float) -> float:
        """How far a value clears the margin; below 0 it fails it."""
        return {
            "above": value - self.margin,
            "below": self.margin - value,
            "within": self.margin - abs(value),
        }[self.direction]


@dataclass(frozen=True, kw_only=True)
class Replication:
    """One claim, measured again.

    `units` names the archive of every configuration that the claim compares. `replicate` takes their runs of one seed
    and gives effects by name. A seed counts where the effect `gate` is at least, or at most, the number with it.
    """

    claim: str
    system: str
    units: Mapping[str, str]
    criteria: Sequence[Criterion]
    replicate: Callable[[Mapping[str, Run]], dict[str, float]]
    at_least: float | None = None
    at_most: float | None = None
    first_seed: int = 16
    last_seed: int = 10**6

    def seeds(self) -> list[int]:
        """The registered seeds of which every configuration has a run."""
        shared = set.intersection(*(set(seeds_of(self.system, archive)) for archive in self.units.values()))
        return sorted(seed for seed in shared if self.first_seed <= seed <= self.last_seed)

    def measure(self, seed: int) -> dict[str, float]:
        """The effects of one seed."""
        runs = {name: read_run(self.system, archive, seed) for name, archive in self.units.items()}
        return self.replicate(runs)

    def passes(self, effects: Mapping[str, float]) -> bool:
        """True if a seed counts."""
        return (self.at_least is None or effects["gate"] >= self.at_least) and (
            self.at_most is None or effects["gate"] <= self.at_most
        )


def n_clear(criteria: Sequence[Criterion], effects: Sequence[Mapping[str, float]]) -> int:
    """The number of seeds in which all criteria are met."""
    return sum(all(part.slack(each[part.effect]) > 0 for part in criteria) for each in effects)


def decide(criteria: Sequence[Criterion], effects: Sequence[Mapping[str, float]]) -> Outcome:
    """The outcome over the seeds that pass the gate.

    All parts must hold, each and together in the same seeds; any part that most seeds fail refutes the claim, and so
    does one seed where the claim says `every`.
    """
    n, clear = len(effects), n_clear(criteria, effects)
    if n < MIN_SEEDS:
        return "INCONCLUSIVE"
    strict = [part.quantifier == "every" for part in criteria]
    meets = [sum(part.slack(each[part.effect]) > 0 for each in effects) for part in criteria]
    fails = [sum(part.slack(each[part.effect]) < 0 for each in effects) for part in criteria]
    if all(_p(k, n) <= LEVEL for k in (*meets, clear)) and all(
        k == n for k, each in zip(meets, strict, strict=True) if each
    ):
        return "SUPPORTED"
    tests = len(criteria) + (len(criteria) > 1)
    if any(tests * _p(k, n) <= LEVEL for k in (*fails, n - clear)) or any(
        k > 0 for k, each in zip(fails, strict, strict=True) if each
    ):
        return "REFUTED"
    share = stats.binomtest(clear, n).proportion_ci(0.95, method="exact")
    return "MIXED" if 0.1 < share.low <= 0.5 <= share.high < 0.9 else "INCONCLUSIVE"


def _p(hits: int, n: int) -> float:
    """Exact p of so many hits or more, where a hit is as likely as none."""
    return float(stats.binomtest(hits, n, alternative="greater").pvalue)
