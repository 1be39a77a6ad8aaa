"""What a trial ends in."""

from dataclasses import dataclass
from typing import Literal

from mnemoscope.judging.intervals import Interval

Outcome = Literal["SUPPORTED", "REFUTED", "MIXED", "INCONCLUSIVE", "NOT_APPLICABLE"]


@dataclass(frozen=True, kw_only=True)
class PartResult:
    """One effect over the replicates that were judged.

    Attributes:
        name: Of the effect.
        share: Of replicates that clear the margin.
        share_interval: Exact.
        effect: Mean over replicates.
        effect_interval: Studentised.
        unit: Of the effect; empty where the evidence names none.
        p_support: Against "this part is false"; NaN without a verdict.
        p_refute: Against "this part is true"; NaN without a verdict.
        finding: The same in words.
    """

    name: str
    share: float
    share_interval: Interval
    effect: float
    effect_interval: Interval
    unit: str
    p_support: float
    p_refute: float
    finding: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome with the numbers behind it.

    Attributes:
        id: Of the claim.
        outcome: `SUPPORTED` and `REFUTED` are decisions. `MIXED`: replicates differ, and about half of them clear the
            margins. `INCONCLUSIVE`: the evidence does not decide, or is not to be trusted. `NOT_APPLICABLE`: too few
            replicates were run for a verdict, or none passes the gate.
        share: Of replicates that clear the margin; with parts, that clear all of them (or any, as the claim says).
        share_interval: Exact.
        effect: Mean over replicates; with parts, of the part that decides: the weakest if all must hold, else the
            strongest.
        effect_interval: Studentised.
        unit: Of the effect.
        p_support: Against "the claim is false", adjusted for the family if it was judged in one; NaN without a verdict.
        p_refute: Against "the claim is true", likewise.
        n: How many replicates were judged.
        n_failed: How many did not pass the gate.
        parts: Results of the parts, the only one of a claim without.
        reason: One plain sentence.
    """

    id: str
    outcome: Outcome
    share: float
    share_interval: Interval
    effect: float
    effect_interval: Interval
    unit: str
    p_support: float
    p_refute: float
    n: int
    n_failed: int
    parts: tuple[PartResult, ...]
    reason: str

    @property
    def p(self) -> float:
        """The p of the outcome; of an undecided claim, that of the direction to which the evidence leans."""
        return {"SUPPORTED": self.p_support, "REFUTED": self.p_refute}.get(
            self.outcome, min(self.p_support, self.p_refute)
        )
