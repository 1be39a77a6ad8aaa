"""Rulings in words: criteria, verdicts and numbers as sentences, and rows of tables."""

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import xarray as xr

from mnemoscope.claims.claim import EFFECT, GATE, Claim, Control, Criterion
from mnemoscope.claims.evidence import prompt_mean, select_effect
from mnemoscope.claims.explanation import Quantity
from mnemoscope.claims.registration import Superseded
from mnemoscope.claims.ruling import Ruling
from mnemoscope.claims.verdict import PartResult, Verdict
from mnemoscope.core.presets import Configuration
from mnemoscope.report.rulings.differences import interval_text, outcome_text
from mnemoscope.report.rulings.phrases import FAILS, GATES, HOLDS, OPPOSITE, PROMPTS
from mnemoscope.report.tables import Number, pluralise

# ---- numbers


def case_means(effect: xr.DataArray) -> np.ndarray:
    """One number per case: the mean over prompts."""
    return np.atleast_1d(prompt_mean(effect.astype(float)).to_numpy())


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


# ---- verdicts


def recipe_text(claim: Claim) -> str:
    """The recipe of the models that a verdict speaks of; a dash for a claim about no model."""
    return claim.recipe or "–"


def effect_unit(ruling: Ruling, name: str) -> str:
    """Unit of an effect; empty where none is named."""
    return str(select_effect(ruling.evidence.effects, name).attrs.get("unit", ""))


def format_favoured(ruling: Ruling) -> str:
    """The explanations that the evidence supports."""
    rivals = [_quoted(rival) for rival in ruling.claim.rivals if rival.id in ruling.favoured]
    return ", ".join([*(["the claim"] if ruling.claim.id in ruling.favoured else []), *rivals]) or "none"


def describe_favoured(ruling: Ruling) -> str:
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


def format_flips(ruling: Ruling) -> str:
    """The changes that flip the verdict, or that on a rival, and the new outcome."""
    if not ruling.sensitivity:
        return "nothing was varied"
    flipped = [
        f"⚑ {cell.factor} = {cell.value} ({whose}{outcome_text(cell.verdict.outcome)})"
        for cell in ruling.flips
        for whose in ("" if cell.verdict.id == ruling.claim.id else f"{cell.verdict.id}: ",)
    ]
    return ", ".join(flipped) or f"under none of {pluralise(len(ruling.sensitivity), 'change')}"


ZERO = "zero"
ZERO_NOTE = (
    "Zero ablation depends on how biases are written: moving b_V into b_O changes no output, but what is lost without "
    "z. Mean and resample ablation do not."
)
"""A warning about cells in which activations are replaced by zero."""


def describe_changed_favourites(ruling: Ruling) -> list[str]:
    """Under which changes other explanations are favoured, a sentence each."""
    return [
        f"⚑ With {factor} = {value} the evidence favours {' and '.join(ids) or 'none of them'}."
        for factor, value, ids in ruling.favoured_otherwise
    ]


def describe_registration(departures: Sequence[str] | None, code: str = "") -> str:
    """A statement whether a claim is as it was registered, with the differences and later changes of its code."""
    if departures is None:
        return "not registered"
    standing = f"not as registered: {', '.join(departures)}" if departures else "as registered"
    return f"{standing}; {code}" if code else standing


def registered_word(departures: Sequence[str] | None) -> str:
    """The same as a word."""
    return "no" if departures is None else "otherwise" if departures else "yes"


def standing_word(ruling: Ruling) -> str:
    """A word on the registration of a claim on trial: before or after its runs, otherwise, or none."""
    if ruling.departures:
        return "otherwise"
    return "no" if ruling.standing.status == "not registered" else ruling.standing.status


def describe_standing(ruling: Ruling) -> str:
    """The registration of a claim on trial in a sentence, with the differences and whether its verdict is confirmed."""
    if ruling.standing.status == "not registered":
        return str(ruling.standing)
    confirmed = ", so the verdict is confirmed" if ruling.confirmed else ""
    return f"{ruling.standing}{confirmed}; {describe_registration(ruling.departures, ruling.code)}"


def sentence(text: str) -> str:
    """A clause as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


CONFIRMED_NOTE = (
    "Only a decision on a claim that was registered before its runs is confirmed; all other verdicts are exploratory."
)
"""The rule that a table of verdicts goes by."""


def selection_notes(rulings: Iterable[Ruling]) -> list[str]:
    """Sentences on how replicates may have been chosen, each with the claims that it is about."""
    notes: dict[str, list[str]] = {}
    for ruling in rulings:
        for sentence in ruling.selection:
            notes.setdefault(sentence, []).append(ruling.claim.id)
    return [f"{', '.join(ids)}: {text}" for text, ids in notes.items()]


def registered_notes(standings: Iterable[tuple[str, Sequence[str] | None, str]]) -> list[str]:
    """Sentences on what a word leaves out, for claims by id with their departures and the code that has moved."""
    notes: dict[str, list[str]] = {}
    for id, departures, code in standings:
        if departures or code:
            notes.setdefault(describe_registration(departures, code), []).append(id)
    return [f"{', '.join(ids)}: {text}" for text, ids in notes.items()]


def outcome_in_short(claim: Claim, verdict: Verdict) -> str:
    """An outcome in words; where there is no verdict, the reason."""
    n_run = verdict.n + verdict.n_failed
    if verdict.outcome != "NOT_APPLICABLE":
        return outcome_text(verdict.outcome)
    if n_run < claim.n_replicates:
        return f"too few {claim.replicate}s ({n_run} of {claim.n_replicates})"
    return f"no {claim.replicate} passes the gate"


def earlier_text(earlier: Superseded) -> str:
    """The outcome of an earlier form of a claim, and the reason for the new form."""
    verdict = "no verdict was kept"
    if earlier.outcome is not None:
        n_clear = round((earlier.share or 0) * earlier.n)
        recipe = f", {earlier.recipe} recipe" if earlier.recipe else ""
        verdict = f"{outcome_text(earlier.outcome)} ({n_clear} of {earlier.n}{recipe})"
    return f"{verdict}; superseded: {earlier.reason}"


# ---- the question, as it was fixed before the first run


def effect_name(name: str) -> str:
    """The name of an effect in a sentence."""
    return "the effect" if name == EFFECT else name


def find_quantity(claim: Claim, name: str) -> Quantity | None:
    """The description of a quantity; None where the claim does not explain it."""
    return None if claim.explanation is None else claim.explanation.quantities.get(name)


def describe_quantity(claim: Claim, name: str) -> str:
    """The words for a quantity, and behind them its formula; empty where the claim does not explain it."""
    found = find_quantity(claim, name)
    return "" if found is None else ": ".join(text for text in (found.words, found.formula) if text)


def format_criterion(claim: Claim, part: Criterion, unit: str | None = None) -> str:
    """The requirement on an effect, with quantifier, margin and unit (the criterion's, unless another is given)."""
    return _sentence(HOLDS, claim, part, part.wording, unit)


def support_condition(
    claim: Claim, units: Mapping[str, str] = MappingProxyType({}), *, subject: str = "The claim"
) -> str:
    """The condition of the claim in one sentence; `units` replace those of the criteria, by effect."""
    parts = [format_criterion(claim, part, units.get(part.name)) for part in claim.criteria]
    return _join_parts(f"{subject} holds if", parts, claim.joined)


def refutation_condition(claim: Claim, units: Mapping[str, str] = MappingProxyType({})) -> str:
    """The refutation of the claim, in one sentence; an effect exactly at a margin speaks neither for nor against it."""
    parts = [
        _sentence(FAILS, claim, part, OPPOSITE[part.direction].format(part.margin), units.get(part.name))
        for part in claim.criteria
    ]
    return _join_parts("It is refuted if", parts, "any" if claim.joined == "all" else "all")


def required_control_result(claim: Claim, control: Control) -> str:
    """The result that the cases of a control must give for the instrument to be trusted."""
    parts = [f"{part.name} {part.wording}" for part in claim.criteria]
    if control.kind == "positive":
        return (" and " if claim.joined == "all" else " or ").join(parts)
    if len(parts) == 1:
        return f"not: {parts[0]}"
    return f"not {'all' if claim.joined == 'all' else 'any'} of: {', '.join(parts)}"


def _join_parts(opening: str, parts: Sequence[str], needed: str) -> str:
    """A sentence of one part, or of several of which all or any are needed."""
    several = f" {needed} of these statements {'are' if needed == 'all' else 'is'} true:" if len(parts) > 1 else ""
    return f"{opening}{several} {'; '.join(parts)}."


def _sentence(words: Mapping[str, str], claim: Claim, part: Criterion, wording: str, unit: str | None) -> str:
    """One part: quantifier, effect, and where it lies."""
    unit = part.unit if unit is None else unit
    wording = f"{wording} ({unit})" if " " in unit else f"{wording} {unit}".strip()
    return words[part.quantifier].format(what=claim.replicate, name=effect_name(part.name), wording=wording)


def registered_terms(claim: Claim, units: Mapping[str, str] = MappingProxyType({})) -> list[tuple[str, str]]:
    """Pairs of a term and a text about all that was fixed before the first run; `units` as for `holds_if`."""
    what, explanation = claim.replicate, claim.explanation
    found = [("criterion", support_condition(claim, units)), ("refutation", refutation_condition(claim, units))]
    if explanation is not None:
        found += [("measured", explanation.procedure), ("margins", explanation.margins), ("shows", explanation.limits)]
    headline = "; a headline claim, which shares one error rate with the others of its system" if claim.headline else ""
    found += [("gate", _gate_text(claim)), ("replicates", f"{claim.n_replicates} {what}s or more{headline}")]
    found.append(("seeds that count", _seeds_text(claim)))
    named = (f"{name} ({_unit(unit)})" for name, unit in claim.units.items())
    found.append(("models", "language models that --model names" if claim.of_language_models else ", ".join(named)))
    if claim.prompts is not None:
        found.append(("prompts", PROMPTS[claim.prompts].format(what=what)))
    return [(term, text) for term, text in found if text]


def trial_terms(ruling: Ruling) -> list[tuple[str, str]]:
    """Pairs of a term and a text about what was fixed before the first run, and about the models on trial."""
    claim, verdict, evidence = ruling.claim, ruling.verdict, ruling.evidence
    found = dict(registered_terms(claim, {part.name: effect_unit(ruling, part.name) for part in claim.criteria}))
    if evidence.models:
        found["models"] = ", ".join(evidence.models)
    if evidence.prompts is not None:
        found["prompts"] = PROMPTS[evidence.prompts].format(what=claim.replicate)
    measured = pluralise(verdict.n + verdict.n_failed, claim.replicate)
    found["measured on"] = f"{measured}; judged: {verdict.n or 'none'}"
    if ruling.set_aside:
        found["not used"] = "; ".join(ruling.set_aside)
    if ruling.independence:
        found["independence"] = "; ".join(ruling.independence)
    found["registered"] = describe_standing(ruling)
    if ruling.selection:
        found["selection"] = "; ".join(ruling.selection)
    if ruling.verified:
        found["verified"] = ruling.verified
    if ruling.false_discovery_rate is not None:
        rate = f"{ruling.false_discovery_rate:.2g}"
        found["false discoveries"] = f"the decision stands at a rate of {rate} among all claims of this call"
    return list(found.items())


def _gate_text(claim: Claim) -> str:
    if claim.gate is None:
        return f"none: the verdict is about every {claim.replicate}"
    measured = f" ({words})" if (words := describe_quantity(claim, GATE)) else ""
    whose = "every" if len(claim.units) > 1 else "the"
    passing = GATES[claim.replicate].format(whose=whose, statement=claim.gate.statement)
    return f"the verdict is about {passing}{measured}"


def _seeds_text(claim: Claim) -> str:
    """The seeds that count; empty if all do."""
    if claim.last_seed is not None:
        return f"{claim.first_seed} to {claim.last_seed}"
    return f"from {claim.first_seed} on" if claim.first_seed else ""


def _unit(unit: Configuration) -> str:
    changes = "".join(f", {name}={value}" for name, value in unit.changes)
    return f"{unit.preset}, {unit.recipe} recipe{changes}"
