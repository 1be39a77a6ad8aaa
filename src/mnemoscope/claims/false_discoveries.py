"""The rate of false discoveries among all claims of one call, beside Holm's procedure over the headline claims.

Of many null claims some come out by chance. Benjamini and Yekutieli's procedure (2001) keeps the expected share of
false decisions among all decisions below a rate. It holds whatever the dependence between claims, which share runs;
Benjamini and Hochberg's, which allows more, asks for positive dependence, and a claim and its contrary have the
opposite. A claim enters with twice the smaller of its two p, since it could be supported or refuted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from scipy.stats import false_discovery_control

from mnemoscope.claims.judge import judge
from mnemoscope.claims.ruling import Ruling
from mnemoscope.claims.verdict import Verdict
from mnemoscope.core.errors import pluralise

RATE = 0.05
"""The rate of false discoveries up to which decisions are said to stand."""
DECISIONS = ("SUPPORTED", "REFUTED")


def adjusted(ps: Mapping[str, float]) -> dict[str, float]:
    """P by id, adjusted for all of them; those that are NaN do not count."""
    known = {id: p for id, p in ps.items() if not math.isnan(p)}
    return dict(zip(known, map(float, false_discovery_control(list(known.values()), method="by")), strict=True))


def with_discovery_rates(rulings: Sequence[Ruling]) -> list[Ruling]:
    """Rulings of one call with the smallest rate at which each decision stands; one alone stays as it is."""
    if len(rulings) < 2:
        return list(rulings)
    rates = adjusted({ruling.claim.id: _two_sided(_alone(ruling)) for ruling in rulings})
    return [replace(ruling, false_discovery_rate=rates.get(ruling.claim.id)) for ruling in rulings]


def describe_discoveries(rulings: Sequence[Ruling]) -> str:
    """A sentence on which decisions of a call stand; empty for a single claim."""
    rates = {ruling.claim.id: ruling.false_discovery_rate for ruling in rulings}
    known = {id: rate for id, rate in rates.items() if rate is not None}
    decided = [
        ruling.claim.id for ruling in rulings if ruling.verdict.outcome in DECISIONS and ruling.claim.id in known
    ]
    if not known or len(rulings) < 2:
        return ""
    fallen = [f"{id} ({known[id]:.2g})" for id in decided if known[id] > RATE]
    stand = f"{len(decided) - len(fallen)} of {pluralise(len(decided), 'decision')} stand"
    but = f"; not {', '.join(fallen)}" if fallen else ""
    rate = f"{RATE:g}".removeprefix("0")
    claims = f"{pluralise(len(known), 'claim')} of this call"
    return f"At a false-discovery rate of {rate} over {claims}, by Benjamini and Yekutieli, {stand}{but}."


def _alone(ruling: Ruling) -> Verdict:
    """The verdict with p that are not adjusted for other headlines."""
    return judge(ruling.claim, ruling.evidence) if ruling.claim.headline else ruling.verdict


def _two_sided(verdict: Verdict) -> float:
    """Twice the smaller p; NaN without a verdict."""
    return min(2 * min(verdict.p_support, verdict.p_refute), 1.0)
