"""What a claim asks, in sentences and as rows: what must hold, what would refute it, what is measured and why so.

All of it was fixed before the first run, and can be said without a verdict.
"""

from collections.abc import Mapping
from types import MappingProxyType

from mnemoscope.judging.claim import EFFECT, GATE, Claim, Control, Criterion
from mnemoscope.judging.verdict import Ruling
from mnemoscope.viz.rulings.words import unit_of

_HOLDS = {
    "most": "in more than half of the {what}s {name} is {wording}",
    "every": "in every {what} {name} is {wording}",
    "exists": "in at least one {what} {name} is {wording}",
    "mean": "on average over the {what}s {name} is {wording}",
    "equivalence": "on average over the {what}s {name} is {wording}, which counts as no effect",
}
_FAILS = {
    "most": "in more than half of the {what}s {name} is {wording}",
    "every": "in at least one {what} {name} is {wording}",
    "exists": "in every {what} {name} is {wording}",
    "mean": "on average over the {what}s {name} is {wording}",
    "equivalence": "on average over the {what}s {name} is {wording}",
}
_OPPOSITE = {"above": "below {:g}", "below": "above {:g}", "within": "further than {:g} from 0"}
_PROMPTS = {
    "own": "every {what} has prompts of its own",
    "shared": "all {what}s share the prompts that were drawn",
    "enumerated": "every possible prompt is measured, so that effects have no sampling error",
}


def effect_name(name: str) -> str:
    """What an effect is called in a sentence."""
    return "the effect" if name == EFFECT else name


def described(claim: Claim, name: str) -> str:
    """What a quantity is, its formula after the words; empty where the claim does not explain it."""
    quantity = None if claim.explanation is None else claim.explanation.quantities.get(name)
    if quantity is None:
        return ""
    return f"{quantity.words}: {quantity.formula}" if quantity.formula else quantity.words


def criterion(claim: Claim, part: Criterion, unit: str | None = None) -> str:
    """What an effect must do, with quantifier, margin and unit (that of the criterion, unless another is given)."""
    return _sentence(_HOLDS, claim, part, part.wording, unit)


def holds_if(claim: Claim, units: Mapping[str, str] = MappingProxyType({}), *, subject: str = "The claim") -> str:
    """When the claim holds, in one sentence.

    Args:
        claim: With its criteria.
        units: By effect, where they are not those of the criteria.
        subject: What the sentence calls it.
    """
    parts = [criterion(claim, part, units.get(part.name)) for part in claim.criteria]
    opening = f"{subject} holds if"
    if len(parts) > 1:
        opening += " all of this is so:" if claim.joined == "all" else " any of this is so:"
    return f"{opening} {'; '.join(parts)}."


def refuted_if(claim: Claim, units: Mapping[str, str] = MappingProxyType({})) -> str:
    """What would refute the claim, in one sentence; what is exactly at a margin speaks neither for nor against it."""
    parts = [
        _sentence(_FAILS, claim, part, _OPPOSITE[part.direction].format(part.margin), units.get(part.name))
        for part in claim.criteria
    ]
    opening = "It is refuted if"
    if len(parts) > 1:
        opening += " any of this is so:" if claim.joined == "all" else " all of this is so:"
    return f"{opening} {'; '.join(parts)}."


def must_give(claim: Claim, control: Control) -> str:
    """What the cases of a control must give for the instrument to be trusted."""
    parts = [f"{part.name} {part.wording}" for part in claim.criteria]
    if control.kind == "positive":
        return (" and " if claim.joined == "all" else " or ").join(parts)
    if len(parts) == 1:
        return f"not: {parts[0]}"
    return f"not {'all' if claim.joined == 'all' else 'any'} of: {', '.join(parts)}"


def _sentence(words: Mapping[str, str], claim: Claim, part: Criterion, wording: str, unit: str | None) -> str:
    """One part: quantifier, effect, and where it lies."""
    unit = part.unit if unit is None else unit
    wording = f"{wording} ({unit})" if " " in unit else f"{wording} {unit}".strip()
    return words[part.quantifier].format(what=claim.replicate, name=effect_name(part.name), wording=wording)


def gate_text(claim: Claim) -> str:
    """Which replicates are judged."""
    if claim.gate is None:
        return f"There is no gate: every {claim.replicate} is judged."
    measured = f" Measured for it: {words}." if (words := described(claim, GATE)) else ""
    return f"The gate: only a {claim.replicate} which {claim.gate.statement} is judged.{measured}"


def seeds_text(claim: Claim) -> str:
    """Which seeds count; empty if all do."""
    if claim.last_seed is not None:
        return f"{claim.first_seed} to {claim.last_seed}"
    return f"from {claim.first_seed} on" if claim.first_seed else ""


def asked(ruling: Ruling) -> list[str]:
    """What was fixed before the first run, a sentence each: criteria, procedure, margins, gate, replicates, units."""
    claim, verdict, explanation = ruling.claim, ruling.verdict, ruling.claim.explanation
    units = {part.name: unit_of(ruling, part.name) for part in claim.criteria}
    sentences = [holds_if(claim, units), refuted_if(claim, units)]
    if explanation is not None:
        sentences += [f"How it is measured: {explanation.procedure}", f"Why these margins: {explanation.margins}"]
        sentences += [f"What it shows: {explanation.limits}"] if explanation.limits else []
    sentences.append(gate_text(claim))
    n_run, what = verdict.n + verdict.n_failed, claim.replicate
    sentences.append(f"It needs {claim.n_replicates} {what}s. Run: {n_run}; of these judged: {verdict.n}.")
    if which := seeds_text(claim):
        sentences.append(f"Seeds that count: {which}.")
    if claim.headline:
        sentences.append("It is a headline claim, which shares one error rate with the others of its system.")
    if claim.units:
        named = (f"{name} ({unit.preset}, {unit.recipe} recipe)" for name, unit in claim.units.items())
        sentences.append(f"Measured on {', '.join(named)}.")
    if ruling.evidence.models:
        of = "models" if what == "model" else "model"
        sentences.append(f"Asked of the language {of} {', '.join(ruling.evidence.models)}.")
    if ruling.set_aside:
        sentences.append(f"Handed in and not used: {'; '.join(ruling.set_aside)}.")
    if ruling.evidence.prompts is not None:
        prompts = _PROMPTS[ruling.evidence.prompts].format(what=what)
        sentences.append(prompts[0].upper() + prompts[1:] + ".")
    return sentences
