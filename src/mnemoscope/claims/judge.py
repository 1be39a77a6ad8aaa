"""From a claim and its evidence to a verdict.

In this order. Replicates that do not pass the claim's gate are counted and set aside. With fewer replicates run than
the claim needs, or none that passes, there are effects and no verdict. With fewer than 16 that pass, or a control that
misbehaves, the evidence is inconclusive whatever its effects. Otherwise every part gives one p for it and one against.

Parts of which *all* must hold are supported at the largest p (intersection-union, Berger 1982) and refuted at the
smallest times their number, which is Holm's p of the first of them; of *any*, the other way round. Where two or more of
those that must all hold are counted over replicates, that they hold in the same ones is one part more.

A decision needs p ≤ `LEVEL`. Among the headline claims of a system it also needs a p that Holm's procedure leaves at or
below `FAMILY_LEVEL`, in each direction apart. `LEVEL` is .005 and not .025 since of 200 null claims no more than 4 may
be supported: at .025 an exact test supports 5 of them. Of 16 seeds `most` then needs 14, of 32 it needs 24.

What is not decided is `MIXED` where the interval of the share contains one half and lies within `MIXED_WITHIN`, unless
the errors of single effects explain why they differ: alike models at the margin are not of two kinds. The rest is
`INCONCLUSIVE`, with what so many replicates could have decided.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import xarray as xr
from jaxtyping import Bool
from scipy import stats
from statsmodels.stats.multitest import multipletests

from mnemoscope.claims.claim import MIN_REPLICATES, Claim, Control, Criterion, Outcome, Quantifier
from mnemoscope.claims.evidence import Effects, Evidence, Sample, prompt_mean, select_effect
from mnemoscope.claims.intervals import Interval, share_interval, studentised
from mnemoscope.claims.quantifiers import LEVEL, QUANTIFIERS, Decision, decide_jointly, replicates_differ
from mnemoscope.claims.verdict import PartResult, Verdict
from mnemoscope.core.errors import InputError, in_range

FAMILY_LEVEL = 0.025
"""Rate of one error or more among the headline claims of a system, in each direction."""
MIXED_WITHIN = (0.1, 0.9)
"""The bounds of the share's interval if replicates are to be called of two kinds."""
N_RESAMPLES = 3999
"""The number of draws of the bootstrap; no p of a mean is below the inverse of one more."""


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """One claim against its evidence, before anything is decided.

    `parts` has the result of each. `joint` is the decision on all counted parts in the same replicates; None where
    there is nothing to join. `alike` is true if single effects differ by no more than their own errors explain; None:
    these are not known. `share` is that of the replicates in which the parts hold, joined as the claim states (NaN
    without replicates), and its interval is exact. `n` replicates pass the gate, `n_failed` do not, and those
    `left_out` were begun and are not known. All have what is `shared`. `barred` is an outcome that no p can change, and
    why; None: the p decide.
    """

    claim: Claim
    parts: tuple[PartResult, ...]
    joint: Decision | None
    alike: bool | None
    share: float
    share_interval: Interval
    n: int
    n_failed: int
    left_out: tuple[str, ...]
    shared: tuple[str, ...]
    barred: tuple[Outcome, str] | None

    @property
    def p_support(self) -> float:
        """P against "the claim is false"; NaN if barred."""
        return self._joined([part.p_support for part in self.decisions], largest=self.claim.joined == "all")

    @property
    def p_refute(self) -> float:
        """P against "the claim is true"; NaN if barred."""
        return self._joined([part.p_refute for part in self.decisions], largest=self.claim.joined == "any")

    @property
    def decisions(self) -> list[PartResult | Decision]:
        """The decisions on the parts, and on all counted ones together."""
        return [*self.parts, *([self.joint] if self.joint else [])]

    def _joined(self, ps: list[float], *, largest: bool) -> float:
        if self.barred:
            return math.nan
        return max(ps) if largest else min(1.0, len(ps) * min(ps))


def judge(claim: Claim, evidence: Evidence, *, seed: int = 0, n_resamples: int = N_RESAMPLES) -> Verdict:
    """The verdict on a claim that stands alone: a rival, a cell of a sensitivity table, any claim of no family.

    The bootstrap draws `n_resamples` from `seed`. Raises InputError where the evidence is not of the kind that the
    claim asks for.

    >>> claim = ms.Claim(id="sure", statement="Runs are sure.", source="ours", quantifier="most", margin=0.9)
    >>> effects = xr.DataArray([0.99] * 16, coords={"seed": range(16)})
    >>> ms.judge(claim, ms.claims.Evidence(effects=effects)).outcome
    'SUPPORTED'
    """
    trial = assess(claim, evidence, seed=seed, n_resamples=n_resamples)
    return _verdict(trial, trial.p_support, trial.p_refute)


def judge_family(
    cases: Iterable[tuple[Claim, Evidence]], *, seed: int = 0, n_resamples: int = N_RESAMPLES
) -> dict[str, Verdict]:
    """Verdicts on the claims of one system, by id.

    The headline claims share `FAMILY_LEVEL`, so all of them must be there; one that gets no p still counts. The others
    are judged as if they stood alone. Errors are those of `judge`; a claim that comes twice is refused too.
    """
    trials = [assess(claim, evidence, seed=seed, n_resamples=n_resamples) for claim, evidence in cases]
    ids = [trial.claim.id for trial in trials]
    if len(set(ids)) < len(ids):
        raise InputError(f"claims of a family must have different ids; got {', '.join(ids)}")
    family = [trial for trial in trials if trial.claim.headline]
    support, refute = _holm([trial.p_support for trial in family]), _holm([trial.p_refute for trial in family])
    adjusted = {trial.claim.id: ps for trial, *ps in zip(family, support, refute, strict=True)}
    return {
        trial.claim.id: _verdict(trial, *adjusted.get(trial.claim.id, (trial.p_support, trial.p_refute)))
        for trial in trials
    }


def assess(claim: Claim, evidence: Evidence, *, seed: int, n_resamples: int) -> Assessment:
    """Confront a claim with its evidence, which must be of the kind that the claim needs."""
    passed = _passing_replicates(claim, evidence)
    n, n_run = int(passed.sum()), len(passed)
    samples = [evidence.sample(part.name, passed) for part in claim.criteria]
    clear = [part.slack(sample.effects) > 0 for part, sample in zip(claim.criteria, samples, strict=True)]
    n_clear = int((np.all if claim.joined == "all" else np.any)(clear, axis=0).sum())
    parts = []
    for part, sample in zip(claim.criteria, samples, strict=True):
        unit = str(select_effect(evidence.effects, part.name).attrs.get("unit", ""))
        parts.append(_result(claim, part, sample, unit, seed=seed, n_resamples=n_resamples))
    return Assessment(
        claim=claim,
        parts=tuple(parts),
        joint=decide_jointly(samples, claim.criteria) if n and claim.joined == "all" else None,
        alike=_are_alike(samples, claim.criteria) if n > 1 else None,
        share=n_clear / n if n else math.nan,
        share_interval=share_interval(n_clear, n),
        n=n,
        n_failed=n_run - n,
        left_out=tuple(map(str, evidence.left_out)),
        shared=tuple(evidence.shared),
        barred=_barring_outcome(claim, evidence, n, n_run),
    )


def _are_alike(samples: Sequence[Sample], parts: Sequence[Criterion]) -> bool | None:
    """True if replicates differ in no part; None where that cannot be told of one and they differ in no other."""
    found = [replicates_differ(sample, part) for sample, part in zip(samples, parts, strict=True)]
    return False if True in found else None if None in found else True


def _passing_replicates(claim: Claim, evidence: Evidence) -> Bool[np.ndarray, " replicate"]:
    if evidence.replicate != claim.replicate:
        raise InputError(f"evidence for {claim.id} must be per {claim.replicate}; got per {evidence.replicate}")
    if claim.gate is None and evidence.gate is None:
        return np.ones(len(evidence.labels), dtype=bool)
    if claim.gate is None or evidence.gate is None:
        where = "evidence" if claim.gate is None else "claim"
        raise InputError(f"gate must be in claim {claim.id} and in its evidence, or in neither; got one in the {where}")
    return claim.gate.passes(evidence.gate)


def _barring_outcome(claim: Claim, evidence: Evidence, n: int, n_run: int) -> tuple[Outcome, str] | None:
    what = f"{claim.replicate}s"
    if n_run < claim.n_replicates:
        return "NOT_APPLICABLE", f"a verdict needs {claim.n_replicates} {what}"
    if n == 0:
        return "NOT_APPLICABLE", "there is nothing to judge"
    if n < MIN_REPLICATES:
        return "INCONCLUSIVE", f"a decision needs {MIN_REPLICATES} {what} that pass; run more"
    wrong = find_control_fault(claim, evidence)
    return ("INCONCLUSIVE", wrong) if wrong else None


def _result(claim: Claim, part: Criterion, sample: Sample, unit: str, *, seed: int, n_resamples: int) -> PartResult:
    n = len(sample)
    mean = studentised(sample, seed=seed, n_resamples=n_resamples)
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
        sd=float(sample.effects.std(ddof=1)) if n > 1 else math.nan,
        power=decision.power,
    )


def find_control_fault(claim: Claim, evidence: Evidence) -> str | None:
    """The fault of the controls, or nothing; refuses undeclared ones, and dimensions that cannot be reduced."""
    declared = [control.name for control in claim.controls]
    undeclared = sorted(set(evidence.controls) - set(declared))
    if undeclared:
        raise InputError(f"controls of {claim.id} are declared beforehand: {declared}; got also {undeclared}")
    for control in claim.controls:
        if control.name not in evidence.controls:
            return f"the control {control.name} was not measured"
        holds = _control_holds(claim, control, evidence.controls[control.name])
        wrong = ~holds if control.kind == "positive" else holds
        if wrong.mean() > control.tolerated:
            which = f"in {wrong.sum()} of {wrong.size} " if wrong.size > 1 else ""
            criterion = "does not meet the criterion, and it must" if control.kind == "positive" else "meets it too"
            return f"the {control.kind} control {control.name} misbehaves: {which}it {criterion}"
    return None


def _control_holds(claim: Claim, control: Control, effects: Effects) -> Bool[np.ndarray, " case"]:
    """True if the claim would hold, in each replicate of a control; NaN does not count as holding."""
    parts = [_effects_clear(part, control, select_effect(effects, part.name)) for part in claim.criteria]
    return (np.all if claim.joined == "all" else np.any)(np.broadcast_arrays(*parts), axis=0)


def _effects_clear(part: Criterion, control: Control, effects: xr.DataArray) -> Bool[np.ndarray, " case"]:
    """True if the effect of each replicate clears the margin; where the claim is about a mean, if theirs does."""
    cases = prompt_mean(effects.astype(float))
    if cases.ndim > 1:
        raise InputError(f"control {control.name} may have one dimension and prompt; got {effects.dims}")
    values = np.atleast_1d(cases.to_numpy())
    if part.quantifier in ("mean", "equivalence"):
        values = np.full_like(values, values.mean())
    return part.slack(values) > 0


def _holm(ps: Sequence[float]) -> list[float]:
    """P adjusted by Holm's procedure (1979); NaN stays, and counts as 1."""
    if not ps:
        return []
    adjusted = np.asarray(multipletests(np.nan_to_num(ps, nan=1.0), method="holm")[1])
    return np.where(np.isnan(ps), np.nan, adjusted).tolist()


def _verdict(trial: Assessment, p_support: float, p_refute: float) -> Verdict:
    outcome = _outcome(trial, p_support, p_refute)
    part = _deciding_part(trial)
    verdict = Verdict(
        id=trial.claim.id,
        outcome=outcome,
        share=trial.share,
        share_interval=trial.share_interval,
        effect=part.effect,
        effect_interval=part.effect_interval,
        unit=part.unit,
        deciding=part.name,
        p_support=p_support,
        p_refute=p_refute,
        n=trial.n,
        n_failed=trial.n_failed,
        parts=trial.parts,
        reason=_reason(trial, outcome, p_support, p_refute),
    )
    assert (verdict.p != verdict.p) == (trial.barred is not None)
    return verdict


def _outcome(trial: Assessment, p_support: float, p_refute: float) -> Outcome:
    if trial.barred:
        return trial.barred[0]
    supported = trial.p_support <= LEVEL and p_support <= FAMILY_LEVEL
    refuted = trial.p_refute <= LEVEL and p_refute <= FAMILY_LEVEL
    assert not (supported and refuted)
    if supported or refuted:
        return "SUPPORTED" if supported else "REFUTED"
    share, (low, high) = trial.share_interval, MIXED_WITHIN
    halves = 0.5 in share and low < share.low and share.high < high
    return "MIXED" if halves and not trial.alike else "INCONCLUSIVE"


def _deciding_part(trial: Assessment) -> PartResult:
    """The part that decides: the weakest if all must hold, the strongest if one is enough."""
    choose = max if trial.claim.joined == "all" else min
    return choose(trial.parts, key=lambda part: (part.p_support, -part.p_refute))


def _reason(trial: Assessment, outcome: Outcome, p_support: float, p_refute: float) -> str:
    """One sentence: who was judged, what was found, and why it decides nothing where it does not."""
    what = f"{trial.claim.replicate}s"
    clauses = []
    if trial.claim.gate is not None:
        clauses.append(f"{trial.n} of {trial.n + trial.n_failed} {what} pass the gate ({trial.claim.gate.statement})")
    if trial.left_out:
        clauses.append(f"{what} {', '.join(trial.left_out)} were begun, did not end and count against any decision")
    if trial.shared:
        clauses.append(f"all {what} share {', '.join(trial.shared)}, so it is about draws of what they do not share")
    if trial.n:
        if len(trial.parts) > 1:
            which = "all parts hold" if trial.claim.joined == "all" else "some part holds"
            clauses.append(f"{which} in {round(trial.share * trial.n)} of {trial.n} {what}")
        clauses += [part.finding for part in trial.parts]
    if trial.barred:
        clauses.append(trial.barred[1])
    elif outcome == "MIXED":
        known = "differ" if trial.alike is False else "differ, or all lie near the margin (their errors are not known)"
        clauses.append(f"{what} {known}: the share that meets the criterion is {trial.share_interval}")
    elif outcome == "INCONCLUSIVE":
        clauses.append(f"this decides neither way (p = {p_support:.2g} for it, {p_refute:.2g} against it)")
        if trial.alike:
            clauses.append(f"{what} differ by no more than the error of each explains")
        powers = dict.fromkeys(part.power for part in trial.decisions if part.power)
        clauses += [f"of {what}, {power}" for power in powers]
    return "; ".join(clauses) + "."


def operating_characteristics(
    quantifier: Quantifier, shares: Sequence[float], n_replicates: Sequence[int], *, n_resamples: int = 999
) -> xr.DataArray:
    """Probability of each outcome by the share of replicates that clear the margin and by how many are judged.

    `shares` are those in the population, 0 to 1; samples have at least 16 replicates, or InputError is raised.
    `n_resamples` is for the bootstrap. Returns `share n_replicates outcome`; rows add to 1.
    """
    for share in shares:
        in_range("share", share, 0, 1)
    for n in n_replicates:
        if n < MIN_REPLICATES:
            raise InputError(f"n_replicates must be at least {MIN_REPLICATES}; got {n}")
    outcomes = list(get_args(Outcome))
    table = np.zeros((len(shares), len(n_replicates), len(outcomes)))
    for j, n in enumerate(n_replicates):
        weights = stats.binom.pmf(np.arange(n + 1), n, np.asarray(shares, dtype=float)[:, None])
        for n_clear in range(n + 1):
            outcome = _simulated_outcome(quantifier, n_clear, n, n_resamples)
            table[:, j, outcomes.index(outcome)] += weights[:, n_clear]
    return xr.DataArray(
        table,
        dims=("share", "n_replicates", "outcome"),
        coords={"share": list(shares), "n_replicates": list(n_replicates), "outcome": outcomes},
        name="probability",
        attrs={"quantifier": quantifier, "unit": "probability"},
    )


def _simulated_outcome(quantifier: Quantifier, n_clear: int, n: int, n_resamples: int) -> Outcome:
    claim = Claim(
        id=quantifier,
        statement=f"planted: {n_clear} of {n}",
        source="operating characteristics",
        quantifier=quantifier,
        margin=1.0,
        direction="within" if quantifier == "equivalence" else "above",
        bounds=(0.0, 2.0),
    )
    clears, fails = (0.0, 2.0) if quantifier == "equivalence" else (2.0, 0.0)
    effects = xr.DataArray(np.where(np.arange(n) < n_clear, clears, fails), coords={"seed": np.arange(n)})
    return judge(claim, Evidence(effects=effects, prompts="enumerated"), n_resamples=n_resamples).outcome
