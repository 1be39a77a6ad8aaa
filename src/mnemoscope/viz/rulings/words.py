"""Verdicts, criteria and numbers in words, and verdicts as rows of plain text."""

import textwrap
from collections.abc import Iterable

from mnemoscope.judging.claim import EFFECT, Claim, Criterion
from mnemoscope.judging.evidence import named
from mnemoscope.judging.verdict import Outcome, PartResult, Ruling, Superseded, Verdict
from mnemoscope.viz.rulings.differences import number as number
from mnemoscope.viz.rulings.differences import outcome_text, with_interval
from mnemoscope.viz.tables import counted

MEANINGS: dict[Outcome, str] = {
    "SUPPORTED": "the evidence decides for the claim",
    "REFUTED": "the evidence decides against it",
    "MIXED": "replicates differ: about half of them meet the criterion",
    "INCONCLUSIVE": "the evidence does not decide, or is not to be trusted",
    "NOT_APPLICABLE": "too few replicates for a verdict, or none passes the gate",
}
"""Every outcome and what it means."""

_ASKED = {
    "most": "in more than half of the {what}s {name} is {wording}",
    "every": "in every {what} {name} is {wording}",
    "exists": "in at least one {what} {name} is {wording}",
    "mean": "on average over the {what}s {name} is {wording}",
    "equivalence": "on average over the {what}s {name} is {wording}, which counts as no effect",
}
_PROMPTS = {
    "own": "every {what} has prompts of its own",
    "shared": "all {what}s share the prompts that were drawn",
    "enumerated": "every possible prompt is measured, so that effects have no sampling error",
}


def share_text(verdict: Verdict | PartResult) -> str:
    """Share of the judged replicates that clear the margins, with its interval."""
    bounds = verdict.share_interval
    return with_interval(verdict.share, bounds.low, bounds.high, form=".2f")


def effect_text(verdict: Verdict | PartResult) -> str:
    """Mean effect with its interval and unit."""
    bounds = verdict.effect_interval
    return with_interval(verdict.effect, bounds.low, bounds.high, verdict.unit)


def recipe_text(claim: Claim) -> str:
    """The recipe of the models that a verdict speaks of; a dash for a claim about no model."""
    return claim.recipe or "–"


def seeds_text(claim: Claim) -> str:
    """Which seeds count; empty if all do."""
    if claim.last_seed is not None:
        return f"{claim.first_seed} to {claim.last_seed}"
    return f"from {claim.first_seed} on" if claim.first_seed else ""


def effect_name(name: str) -> str:
    """What an effect is called in a sentence."""
    return "the effect" if name == EFFECT else name


def unit_of(ruling: Ruling, name: str) -> str:
    """Unit of an effect; empty where none is named."""
    return str(named(ruling.evidence.effects, name).attrs.get("unit", ""))


def criterion(ruling: Ruling, part: Criterion) -> str:
    """What an effect must do, with quantifier, margin and unit."""
    wording = f"{part.wording} {unit_of(ruling, part.name)}".strip()
    return _ASKED[part.quantifier].format(what=ruling.claim.replicate, name=effect_name(part.name), wording=wording)


def asked(ruling: Ruling) -> list[str]:
    """What was fixed before the first run, a sentence each: criteria, gate, number of replicates, units, prompts."""
    claim, verdict = ruling.claim, ruling.verdict
    parts = [criterion(ruling, part) for part in claim.criteria]
    opening = "The claim holds if"
    if len(parts) > 1:
        opening += " all of this is so:" if claim.joined == "all" else " any of this is so:"
    n_run = verdict.n + verdict.n_failed
    what = claim.replicate
    sentences = [f"{opening} {'; '.join(parts)}.", _gate(claim)]
    sentences.append(f"It needs {claim.n_replicates} {what}s. Run: {n_run}; of these judged: {verdict.n}.")
    if which := seeds_text(claim):
        sentences.append(f"Seeds that count: {which}.")
    if claim.headline:
        sentences.append("It is a headline claim, which shares one error rate with the others of its system.")
    if claim.units:
        units = (f"{name} ({unit.preset}, {unit.recipe} recipe)" for name, unit in claim.units.items())
        sentences.append(f"Measured on {', '.join(units)}.")
    if ruling.evidence.models:
        of = "models" if what == "model" else "model"
        sentences.append(f"Asked of the language {of} {', '.join(ruling.evidence.models)}.")
    if ruling.set_aside:
        sentences.append(f"Handed in and not used: {'; '.join(ruling.set_aside)}.")
    if ruling.evidence.prompts is not None:
        prompts = _PROMPTS[ruling.evidence.prompts].format(what=what)
        sentences.append(prompts[0].upper() + prompts[1:] + ".")
    return sentences


def _gate(claim: Claim) -> str:
    if claim.gate is None:
        return f"There is no gate: every {claim.replicate} is judged."
    return f"The gate: only a {claim.replicate} which {claim.gate.statement} is judged."


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
    """Which changes flip the verdict, or that on a rival, and to what."""
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
"""What has to be known of cells in which activations are replaced by zero."""


def favoured_otherwise(ruling: Ruling) -> list[str]:
    """Under which changes other explanations are favoured, a sentence each."""
    return [
        f"⚑ With {factor} = {value} the evidence favours {' and '.join(ids) or 'none of them'}."
        for factor, value, ids in ruling.favoured_otherwise
    ]


def as_registered(ruling: Ruling) -> str:
    """Whether the claim is as it was registered, and what differs."""
    if ruling.departures is None:
        return "not registered"
    return f"not as registered: {', '.join(ruling.departures)}" if ruling.departures else "as registered"


def earlier_text(earlier: Superseded) -> str:
    """What came out of a claim as it was asked before, and why it is asked otherwise now."""
    verdict = "no verdict was kept"
    if earlier.outcome is not None:
        n_clear = round((earlier.share or 0) * earlier.n)
        recipe = f", {earlier.recipe} recipe" if earlier.recipe else ""
        verdict = f"{outcome_text(earlier.outcome)} ({n_clear} of {earlier.n}{recipe})"
    return f"{verdict}; superseded: {earlier.reason}"


VERDICT_HEADER = ("id", "statement", "verdict", "recipe", "share", "effect", "registered", "why")
LONGEST = 72
"""Characters of a statement."""


def verdict_rows(rulings: Iterable[Ruling]) -> list[list[str]]:
    """For every ruling: id, statement in short, outcome, recipe of the models, share and effect with 95 % intervals,
    whether it is as registered, and the reason.
    """
    return [
        [
            ruling.claim.id,
            textwrap.shorten(ruling.claim.statement, LONGEST, placeholder=" …"),
            outcome_text(ruling.verdict.outcome),
            recipe_text(ruling.claim),
            share_text(ruling.verdict),
            effect_text(ruling.verdict),
            as_registered(ruling),
            ruling.reason,
        ]
        for ruling in rulings
    ]
