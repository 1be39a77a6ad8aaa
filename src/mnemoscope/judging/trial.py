"""A claim against its evidence: effects, shares and p, before anything is decided.

In this order. Replicates that do not pass the claim's gate are counted and set aside. With fewer replicates run than
the claim needs, or none that passes, there are effects and no verdict. With fewer than 16 that pass, or a control that
misbehaves, the evidence is inconclusive whatever it says. Otherwise every part gives one p for it and one against it.

Parts of which *all* must hold are supported at the largest p (intersection-union, Berger 1982) and refuted at the
smallest times their number, which is Holm's p of the first of them; of *any*, the other way round.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from mnemoscope.core.errors import InputError
from mnemoscope.judging.claim import MIN_REPLICATES, Claim
from mnemoscope.judging.controls import misbehaviour
from mnemoscope.judging.criteria import Criterion
from mnemoscope.judging.evidence import Evidence, named
from mnemoscope.judging.intervals import Interval, average, share_interval
from mnemoscope.judging.quantifiers import QUANTIFIERS, Decision
from mnemoscope.judging.sample import Sample
from mnemoscope.judging.verdict import Outcome, PartResult


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What the evidence says of one claim.

    Attributes:
        claim: What is claimed.
        parts: Result of each part.
        share: Of replicates in which the parts hold, joined as the claim says; NaN without replicates.
        share_interval: Exact.
        n: How many replicates pass the gate.
        n_failed: How many do not.
        barred: An outcome that no p can change, and why; None: the p decide.
    """

    claim: Claim
    parts: tuple[PartResult, ...]
    share: float
    share_interval: Interval
    n: int
    n_failed: int
    barred: tuple[Outcome, str] | None

    @property
    def p_support(self) -> float:
        """P against "the claim is false"; NaN if barred."""
        return self._joined([part.p_support for part in self.parts], largest=self.claim.joined == "all")

    @property
    def p_refute(self) -> float:
        """P against "the claim is true"; NaN if barred."""
        return self._joined([part.p_refute for part in self.parts], largest=self.claim.joined == "any")

    def _joined(self, ps: list[float], *, largest: bool) -> float:
        if self.barred:
            return math.nan
        return max(ps) if largest else min(1.0, len(ps) * min(ps))


def assess(claim: Claim, evidence: Evidence, *, seed: int, n_resamples: int) -> Trial:
    """Confront a claim with its evidence.

    Raises:
        InputError: The evidence is not of the kind that the claim asks for.
    """
    passed = _passed(claim, evidence)
    n, n_run = int(passed.sum()), len(passed)
    samples = [evidence.sample(part.name, passed) for part in claim.criteria]
    clear = [part.slack(sample.effects) > 0 for part, sample in zip(claim.criteria, samples, strict=True)]
    n_clear = int((np.all if claim.joined == "all" else np.any)(clear, axis=0).sum())
    parts = []
    for part, sample in zip(claim.criteria, samples, strict=True):
        unit = str(named(evidence.effects, part.name).attrs.get("unit", ""))
        parts.append(_result(claim, part, sample, unit, seed=seed, n_resamples=n_resamples))
    return Trial(
        claim=claim,
        parts=tuple(parts),
        share=n_clear / n if n else math.nan,
        share_interval=share_interval(n_clear, n),
        n=n,
        n_failed=n_run - n,
        barred=_barred(claim, evidence, n, n_run),
    )


def _passed(claim: Claim, evidence: Evidence) -> Bool[np.ndarray, " replicate"]:
    if evidence.replicate != claim.replicate:
        raise InputError(f"evidence for {claim.id} must be per {claim.replicate}; got per {evidence.replicate}")
    if claim.gate is None and evidence.gate is None:
        return np.ones(len(evidence.labels), dtype=bool)
    if claim.gate is None or evidence.gate is None:
        where = "evidence" if claim.gate is None else "claim"
        raise InputError(f"gate must be in claim {claim.id} and in its evidence, or in neither; got one in the {where}")
    return claim.gate.passes(evidence.gate)


def _barred(claim: Claim, evidence: Evidence, n: int, n_run: int) -> tuple[Outcome, str] | None:
    what = f"{claim.replicate}s"
    if n_run < claim.n_replicates:
        return "NOT_APPLICABLE", f"a verdict needs {claim.n_replicates} {what}"
    if n == 0:
        return "NOT_APPLICABLE", "there is nothing to judge"
    if n < MIN_REPLICATES:
        return "INCONCLUSIVE", f"a decision needs {MIN_REPLICATES} {what} that pass; run more"
    wrong = misbehaviour(claim, evidence)
    return ("INCONCLUSIVE", wrong) if wrong else None


def _result(claim: Claim, part: Criterion, sample: Sample, unit: str, *, seed: int, n_resamples: int) -> PartResult:
    n = len(sample)
    mean = average(sample, seed=seed, n_resamples=n_resamples)
    n_clear = int((part.slack(sample.effects) > 0).sum())
    decision = (
        QUANTIFIERS[part.quantifier](sample, part, mean) if n else Decision(p_support=math.nan, p_refute=math.nan)
    )
    name = part.name if claim.parts else "the effect"
    finding = f"{name} is {part.wording} {unit}".strip() + f" in {n_clear} of {n} {claim.replicate}s"
    return PartResult(
        name=part.name,
        share=n_clear / n if n else math.nan,
        share_interval=share_interval(n_clear, n),
        effect=mean.mean,
        effect_interval=mean.interval,
        unit=unit,
        p_support=decision.p_support,
        p_refute=decision.p_refute,
        finding=f"{finding}, {decision.remark}" if decision.remark else finding,
    )
