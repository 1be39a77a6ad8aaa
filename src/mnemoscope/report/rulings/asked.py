"""The question of a claim, as it was fixed before the first run, in sentences and as rows: no verdict is needed."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mnemoscope.claims.claim import EFFECT, GATE, Claim, Control, Criterion
from mnemoscope.claims.explanation import Quantity
from mnemoscope.claims.verdict import Ruling
from mnemoscope.core.presets import Configuration
from mnemoscope.report.rulings.words import unit_of
from mnemoscope.report.tables import counted

_HOLDS = {
    "most": "in more than half of the {what}s {name} is {wording}",
    "every": "in every {what} {name} is {wording}",
    "exists": "in at least one {what} {name} is {wording}",
    "mean": "on average over the {what}s {name} is {wording}",
    "equivalence": "on average over the {what}s {name} is {wording}, which counts as no effect",
}
_FAILS = {**_HOLDS, "every": _HOLDS["exists"], "exists": _HOLDS["every"], "equivalence": _HOLDS["mean"]}
"""The words for evidence against a claim, with the opposite quantifier: against all one, against one all."""
_OPPOSITE = {"above": "below {:g}", "below": "above {:g}", "within": "further than {:g} from 0"}
_PROMPTS = {
    "own": "every {what} has prompts of its own",
    "shared": "all {what}s share the prompts that were drawn",
    "enumerated": "every possible prompt is measured, so that effects have no sampling error",
}


def effect_name(name: str) -> str:
    """The name of an effect in a sentence."""
    return "the effect" if name == EFFECT else name


def quantity(claim: Claim, name: str) -> Quantity | None:
    """The description of a quantity; None where the claim does not explain it."""
    return None if claim.explanation is None else claim.explanation.quantities.get(name)


def described(claim: Claim, name: str) -> str:
    """The words for a quantity, and behind them its formula; empty where the claim does not explain it."""
    found = quantity(claim, name)
    return "" if found is None else ": ".join(text for text in (found.words, found.formula) if text)


def criterion(claim: Claim, part: Criterion, unit: str | None = None) -> str:
    """The requirement on an effect, with quantifier, margin and unit (the criterion's, unless another is given)."""
    return _sentence(_HOLDS, claim, part, part.wording, unit)


def holds_if(claim: Claim, units: Mapping[str, str] = MappingProxyType({}), *, subject: str = "The claim") -> str:
    """The condition of the claim in one sentence; `units` replace those of the criteria, by effect."""
    parts = [criterion(claim, part, units.get(part.name)) for part in claim.criteria]
    return _joined(f"{subject} holds if", parts, claim.joined)


def refuted_if(claim: Claim, units: Mapping[str, str] = MappingProxyType({})) -> str:
    """The refutation of the claim, in one sentence; an effect exactly at a margin speaks neither for nor against it."""
    parts = [
        _sentence(_FAILS, claim, part, _OPPOSITE[part.direction].format(part.margin), units.get(part.name))
        for part in claim.criteria
    ]
    return _joined("It is refuted if", parts, "any" if claim.joined == "all" else "all")


def must_give(claim: Claim, control: Control) -> str:
    """The result that the cases of a control must give for the instrument to be trusted."""
    parts = [f"{part.name} {part.wording}" for part in claim.criteria]
    if control.kind == "positive":
        return (" and " if claim.joined == "all" else " or ").join(parts)
    if len(parts) == 1:
        return f"not: {parts[0]}"
    return f"not {'all' if claim.joined == 'all' else 'any'} of: {', '.join(parts)}"


def _joined(opening: str, parts: Sequence[str], needed: str) -> str:
    """A sentence of one part, or of several of which all or any are needed."""
    several = f" {needed} of this is so:" if len(parts) > 1 else ""
    return f"{opening}{several} {'; '.join(parts)}."


def _sentence(words: Mapping[str, str], claim: Claim, part: Criterion, wording: str, unit: str | None) -> str:
    """One part: quantifier, effect, and where it lies."""
    unit = part.unit if unit is None else unit
    wording = f"{wording} ({unit})" if " " in unit else f"{wording} {unit}".strip()
    return words[part.quantifier].format(what=claim.replicate, name=effect_name(part.name), wording=wording)


def fixed(claim: Claim, units: Mapping[str, str] = MappingProxyType({})) -> list[tuple[str, str]]:
    """Pairs of a term and a text about all that was fixed before the first run; `units` as for `holds_if`."""
    what, explanation = claim.replicate, claim.explanation
    found = [("criterion", holds_if(claim, units)), ("refutation", refuted_if(claim, units))]
    if explanation is not None:
        found += [("measured", explanation.procedure), ("margins", explanation.margins), ("shows", explanation.limits)]
    headline = "; a headline claim, which shares one error rate with the others of its system" if claim.headline else ""
    found += [("gate", _gate(claim)), ("replicates", f"{claim.n_replicates} {what}s or more{headline}")]
    found.append(("seeds that count", _seeds(claim)))
    named = (f"{name} ({_unit(unit)})" for name, unit in claim.units.items())
    found.append(("models", "language models that --model names" if claim.of_language_models else ", ".join(named)))
    if claim.prompts is not None:
        found.append(("prompts", _PROMPTS[claim.prompts].format(what=what)))
    return [(term, text) for term, text in found if text]


def asked(ruling: Ruling) -> list[tuple[str, str]]:
    """Pairs of a term and a text about what was fixed before the first run, and about the models on trial."""
    claim, verdict, evidence = ruling.claim, ruling.verdict, ruling.evidence
    found = dict(fixed(claim, {part.name: unit_of(ruling, part.name) for part in claim.criteria}))
    if evidence.models:
        found["models"] = ", ".join(evidence.models)
    if evidence.prompts is not None:
        found["prompts"] = _PROMPTS[evidence.prompts].format(what=claim.replicate)
    measured = counted(verdict.n + verdict.n_failed, claim.replicate)
    found["measured on"] = f"{measured}; judged: {verdict.n or 'none'}"
    if ruling.set_aside:
        found["not used"] = "; ".join(ruling.set_aside)
    return list(found.items())


def _gate(claim: Claim) -> str:
    if claim.gate is None:
        return f"none: every {claim.replicate} is judged"
    measured = f" ({words})" if (words := described(claim, GATE)) else ""
    return f"only a {claim.replicate} is judged which {claim.gate.statement}{measured}"


def _seeds(claim: Claim) -> str:
    """The seeds that count; empty if all do."""
    if claim.last_seed is not None:
        return f"{claim.first_seed} to {claim.last_seed}"
    return f"from {claim.first_seed} on" if claim.first_seed else ""


def _unit(unit: Configuration) -> str:
    changes = "".join(f", {name}={value}" for name, value in unit.changes)
    return f"{unit.preset}, {unit.recipe} recipe{changes}"
