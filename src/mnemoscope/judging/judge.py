"""From a claim and its evidence to a verdict.

A decision needs p ≤ `LEVEL`. Among the headline claims of a system it also needs a p that Holm's procedure leaves at or
below `FAMILY_LEVEL`, in each direction apart. `LEVEL` is .005 and not .025 since of 200 null claims no more than 4 may
be supported: at .025 an exact test supports 5 of them. Of 16 seeds `most` then needs 14, of 32 it needs 24.

What is not decided is `MIXED` where the interval of the share contains one half and lies within `MIXED_WITHIN`, and
`INCONCLUSIVE` otherwise.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from statsmodels.stats.multitest import multipletests

from mnemoscope.core.errors import InputError
from mnemoscope.judging.claim import Claim
from mnemoscope.judging.evidence import Evidence
from mnemoscope.judging.trial import Trial, assess
from mnemoscope.judging.verdict import Outcome, PartResult, Verdict

LEVEL = 0.005
"""Error rate of one verdict, in each direction."""
FAMILY_LEVEL = 0.025
"""Rate of one error or more among the headline claims of a system, in each direction."""
MIXED_WITHIN = (0.1, 0.9)
"""Where the interval of the share must lie if replicates are to be called of two kinds."""
N_RESAMPLES = 3999
"""Of the bootstrap; no p of a mean is below the inverse of one more."""


def judge(claim: Claim, evidence: Evidence, *, seed: int = 0, n_resamples: int = N_RESAMPLES) -> Verdict:
    """The verdict on a claim that stands alone: a rival, a cell of a sensitivity table, any claim of no family.

    Args:
        claim: What is claimed.
        evidence: What was measured.
        seed: Of the bootstrap.
        n_resamples: Of the bootstrap.

    Raises:
        InputError: The evidence is not of the kind that the claim asks for.
    """
    trial = assess(claim, evidence, seed=seed, n_resamples=n_resamples)
    return _verdict(trial, trial.p_support, trial.p_refute)


def judge_family(
    cases: Iterable[tuple[Claim, Evidence]], *, seed: int = 0, n_resamples: int = N_RESAMPLES
) -> dict[str, Verdict]:
    """Verdicts on the claims of one system, by id.

    The headline claims share `FAMILY_LEVEL`, so all of them must be there; one that gets no p still counts. The others
    are judged as if they stood alone.

    Raises:
        InputError: As for `judge`, or a claim comes twice.
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


def _holm(ps: Sequence[float]) -> list[float]:
    """P adjusted by Holm's procedure (1979); NaN stays, and counts as 1."""
    if not ps:
        return []
    adjusted = np.asarray(multipletests(np.nan_to_num(ps, nan=1.0), method="holm")[1])
    return np.where(np.isnan(ps), np.nan, adjusted).tolist()


def _verdict(trial: Trial, p_support: float, p_refute: float) -> Verdict:
    outcome = _outcome(trial, p_support, p_refute)
    part = _deciding(trial)
    verdict = Verdict(
        id=trial.claim.id,
        outcome=outcome,
        share=trial.share,
        share_interval=trial.share_interval,
        effect=part.effect,
        effect_interval=part.effect_interval,
        unit=part.unit,
        p_support=p_support,
        p_refute=p_refute,
        n=trial.n,
        n_failed=trial.n_failed,
        parts=trial.parts,
        reason=_reason(trial, outcome, p_support, p_refute),
    )
    assert (verdict.p != verdict.p) == (trial.barred is not None)
    return verdict


def _outcome(trial: Trial, p_support: float, p_refute: float) -> Outcome:
    if trial.barred:
        return trial.barred[0]
    supported = trial.p_support <= LEVEL and p_support <= FAMILY_LEVEL
    refuted = trial.p_refute <= LEVEL and p_refute <= FAMILY_LEVEL
    assert not (supported and refuted)
    if supported or refuted:
        return "SUPPORTED" if supported else "REFUTED"
    share, (low, high) = trial.share_interval, MIXED_WITHIN
    return "MIXED" if 0.5 in share and low < share.low and share.high < high else "INCONCLUSIVE"


def _deciding(trial: Trial) -> PartResult:
    """The part on which it hangs: the weakest if all must hold, the strongest if one is enough."""
    choose = max if trial.claim.joined == "all" else min
    return choose(trial.parts, key=lambda part: (part.p_support, -part.p_refute))


def _reason(trial: Trial, outcome: Outcome, p_support: float, p_refute: float) -> str:
    """One sentence: who was judged, what was found, and why it decides nothing where it does not."""
    what = f"{trial.claim.replicate}s"
    clauses = []
    if trial.claim.gate is not None:
        clauses.append(f"{trial.n} of {trial.n + trial.n_failed} {what} pass the gate ({trial.claim.gate.statement})")
    if trial.n:
        if len(trial.parts) > 1:
            which = "all parts hold" if trial.claim.joined == "all" else "some part holds"
            clauses.append(f"{which} in {round(trial.share * trial.n)} of {trial.n} {what}")
        clauses += [part.finding for part in trial.parts]
    if trial.barred:
        clauses.append(trial.barred[1])
    elif outcome == "MIXED":
        clauses.append(f"{what} differ: the share that meets the criterion is {trial.share_interval}")
    elif outcome == "INCONCLUSIVE":
        clauses.append(f"this decides neither way (p = {p_support:.2g} for it, {p_refute:.2g} against it)")
    return "; ".join(clauses) + "."
