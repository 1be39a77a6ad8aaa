"""The result of judging a claim: its verdict, and that of each of its parts."""

import math
from dataclasses import dataclass

from mnemoscope.claims.claim import Outcome
from mnemoscope.claims.intervals import Interval
from mnemoscope.core.html import html_table


@dataclass(frozen=True, kw_only=True)
class PartResult:
    """One effect over the replicates that were judged.

    `share` is that of the replicates that clear the margin, with an exact interval; `effect` is their mean, with a
    studentised interval. The unit is empty where the evidence names none. `p_support` is the p against "this part is
    false" and `p_refute` that against "this part is true"; NaN without a verdict. `finding` says the same in words.
    `power` says what so many replicates can decide; it is shown where they decide nothing. `sd` is the standard
    deviation of the effect between replicates; NaN below two of them.
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
    power: str = ""
    sd: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome with the numbers behind it.

    Attributes:
        outcome: `SUPPORTED` and `REFUTED` are decisions. `MIXED`: replicates differ, and about half of them clear the
            margins. `INCONCLUSIVE`: the evidence does not decide, or is not to be trusted. `NOT_APPLICABLE`: too few
            replicates were run for a verdict, or none passes the gate.
        share: Of replicates that clear the margin; with parts, that clear all of them (or any, as the claim states).
        share_interval: Exact.
        effect: Mean over replicates; with parts, of the part that decides: the weakest if all must hold, else the
            strongest.
        effect_interval: Studentised.
        p_support: Against "the claim is false", adjusted for the family if it was judged in one; NaN without a verdict.
        p_refute: Against "the claim is true", likewise.
        n: The number of replicates judged, which passed the gate; `n_failed` did not.
        parts: Results of the parts, the only one of a claim without.
        deciding: Name of the part that decides.
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
    deciding: str = ""

    @property
    def n_clear(self) -> int:
        """Judged replicates in which the claim holds."""
        return round(self.share * self.n) if self.n else 0

    @property
    def p(self) -> float:
        """The p of the outcome; of an undecided claim, that of the direction to which the evidence leans."""
        return {"SUPPORTED": self.p_support, "REFUTED": self.p_refute}.get(
            self.outcome, min(self.p_support, self.p_refute)
        )

    def _repr_html_(self) -> str:
        """Outcome, share and effect with their intervals, and the reason, for notebooks."""
        rows = [("outcome", self.outcome.replace("_", " ")), ("reason", self.reason)]
        rows.append(("share", f"{self.share:.2f} (95 %: {self.share_interval})"))
        rows.append(("effect", f"{self.effect:.4g} {self.unit} (95 %: {self.effect_interval})"))
        return html_table(f"verdict on {self.id}", rows)
