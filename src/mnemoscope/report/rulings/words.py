"""Verdicts, criteria and numbers in words."""

import math
from collections.abc import Sequence

import xarray as xr

from mnemoscope.claims.claim import Claim
from mnemoscope.claims.evidence import named
from mnemoscope.claims.verdict import Outcome, PartResult, Ruling, Superseded, Verdict
from mnemoscope.report.rulings.differences import interval_text, outcome_text
from mnemoscope.report.rulings.differences import number as number
from mnemoscope.report.tables import Number, counted

MEANINGS: dict[Outcome, str] = {
    "SUPPORTED": "the evidence decides for the claim",
    "REFUTED": "the evidence decides against it",
    "MIXED": "replicates differ: about half of them meet the criterion",
    "INCONCLUSIVE": "the evidence does not decide, or is not to be trusted",
    "NOT_APPLICABLE": "too few replicates for a verdict, or none passes the gate",
}
"""Every outcome and its meaning."""


def share_text(verdict: Verdict | PartResult, *, n: int | None = None) -> Number:
    """Share of the judged replicates that clear the margins, with its interval; `n` is how many are judged."""
    bounds = verdict.share_interval
    return with_interval(verdict.share, bounds.low, bounds.high, form=".2f", n=n)


def effect_text(verdict: Verdict | PartResult, *, n: int | None = None, each: xr.DataArray | None = None) -> Number:
    """Mean effect with its interval and unit; `n` is how many replicates are judged, `each` the effects of these."""
    bounds = verdict.effect_interval
    return with_interval(verdict.effect, bounds.low, bounds.high, verdict.unit, n=n, each=each)


def with_interval(
    value: float | None,
    low: float | None,
    high: float | None,
    unit: str = "",
    form: str = ".4g",
    *,
    n: int | None = None,
    each: xr.DataArray | None = None,
) -> Number:
    """A number, its interval and its unit; None for a bound is infinity, None or NaN for the number a dash."""
    if value is None or math.isnan(value):
        return Number("–", mean=math.nan, n=n, each=each)
    text = interval_text(value, low, high, unit, form)
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    return Number(text, mean=value, low=low, high=high, interval="95 %", n=n, unit=unit, each=each)


def recipe_text(claim: Claim) -> str:
    """The recipe of the models that a verdict speaks of; a dash for a claim about no model."""
    return claim.recipe or "–"


def unit_of(ruling: Ruling, name: str) -> str:
    """Unit of an effect; empty where none is named."""
    return str(named(ruling.evidence.effects, name).attrs.get("unit", ""))


def favoured(ruling: Ruling) -> str:
    """The explanations that the evidence supports."""
    rivals = [_quoted(rival) for rival in ruling.claim.rivals if rival.id in ruling.favoured]
    return ", ".join([*(["the claim"] if ruling.claim.id in ruling.favoured else []), *rivals]) or "none"


def favours(ruling: Ruling) -> str:
    """A sentence on which explanation the evidence favours."""
    claim, favoured = ruling.claim, ruling.favoured
    rivals = [_quoted(rival) for rival in claim.rivals if rival.id in favoured]
    if not claim.rivals:
        return f"The evidence {'favours' if favoured else 'does not support'} the claim; no rival was tried."
    if not favoured:
        return "The evidence supports neither the claim nor a rival."
    if not rivals:
        return "The evidence favours the claim over its rivals."
    if claim.id in favoured:
        return f"The evidence does not tell the claim apart from {' and '.join(rivals)}: it supports them alike."
    return f"The evidence favours {' and '.join(rivals)} over the claim."


def _quoted(rival: Claim) -> str:
    return f"{rival.id} (“{rival.statement}”)"


def flips(ruling: Ruling) -> str:
    """The changes that flip the verdict, or that on a rival, and the new outcome."""
    if not ruling.sensitivity:
        return "nothing was varied"
    flipped = [
        f"⚑ {cell.factor} = {cell.value} ({whose}{outcome_text(cell.verdict.outcome)})"
        for cell in ruling.flips
        for whose in ("" if cell.verdict.id == ruling.claim.id else f"{cell.verdict.id}: ",)
    ]
    return ", ".join(flipped) or f"under none of {counted(len(ruling.sensitivity), 'change')}"


ZERO = "zero"
ZERO_NOTE = (
    "Zero ablation depends on how biases are written: moving b_V into b_O changes no output, but what is lost without "
    "z. Mean and resample ablation do not."
)
"""A warning about cells in which activations are replaced by zero."""


def favoured_otherwise(ruling: Ruling) -> list[str]:
    """Under which changes other explanations are favoured, a sentence each."""
    return [
        f"⚑ With {factor} = {value} the evidence favours {' and '.join(ids) or 'none of them'}."
        for factor, value, ids in ruling.favoured_otherwise
    ]


def as_registered(departures: Sequence[str] | None, code: str = "") -> str:
    """A statement whether a claim is as it was registered, with the differences and later changes of its code."""
    if departures is None:
        return "not registered"
    standing = f"not as registered: {', '.join(departures)}" if departures else "as registered"
    return f"{standing}; {code}" if code else standing


def earlier_text(earlier: Superseded) -> str:
    """The outcome of an earlier form of a claim, and the reason for the new form."""
    verdict = "no verdict was kept"
    if earlier.outcome is not None:
        n_clear = round((earlier.share or 0) * earlier.n)
        recipe = f", {earlier.recipe} recipe" if earlier.recipe else ""
        verdict = f"{outcome_text(earlier.outcome)} ({n_clear} of {earlier.n}{recipe})"
    return f"{verdict}; superseded: {earlier.reason}"
