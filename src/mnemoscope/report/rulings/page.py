"""The verdict report: all verdicts in one table, then one section per claim, with the way to reproduce its verdict."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import xarray as xr
from markupsafe import Markup

from mnemoscope.claims.claim import GATE, Claim, Control, Outcome
from mnemoscope.claims.evidence import prompt_mean, select_effect
from mnemoscope.claims.explanation import Quantity
from mnemoscope.claims.false_discoveries import describe_discoveries
from mnemoscope.claims.judge import find_control_fault
from mnemoscope.claims.multiverse import Multiverse
from mnemoscope.claims.ruling import Ruling, SensitivityCell
from mnemoscope.claims.verdict import PartResult, Verdict
from mnemoscope.report.page import TEMPLATES, Page, attention_view
from mnemoscope.report.rulings import rows, words
from mnemoscope.report.rulings.differences import format_number
from mnemoscope.report.rulings.phrases import MEANINGS, NO_VERDICT, SIGNS
from mnemoscope.report.rulings.plots import LOOKS, emergence_plots, short_names, strip_plots
from mnemoscope.report.rulings.specification_curve import specification_curve
from mnemoscope.report.rulings.words import case_means, effect_name, effect_unit, find_quantity

_BEHAVED = "✓"
_Row = tuple[Sequence[Any], Sequence[Any]]
"""The cells of a row, and lines below them over the whole width."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionExample:
    """The attention of one model on one sequence: one example of `patterns_of_sequences`.

    `caption` says which seed it is and why it is shown, and has the sequence. `attention` holds `pattern` (layer, head,
    query, key) and `token` (key).
    """

    caption: str
    attention: xr.Dataset


def rulings_page(
    rulings: Sequence[Ruling],
    *,
    title: str,
    lead: str = "",
    examples: Mapping[str, Sequence[AttentionExample]] = MappingProxyType({}),
    sources: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> str:
    """One self-contained HTML page, for the screen and for paper; arguments as of `rulings_sheet`."""
    return rulings_sheet(rulings, title=title, lead=lead, examples=examples, sources=sources).html()


def rulings_sheet(
    rulings: Sequence[Ruling],
    *,
    title: str,
    lead: str = "",
    examples: Mapping[str, Sequence[AttentionExample]] = MappingProxyType({}),
    sources: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Page:
    """The page, put together from rulings in their order on it.

    `lead` is a sentence under the title. By id of the claim, `examples` give attention on single sequences, and
    `sources` pieces of HTML on the way to reproduce its verdict and the place of its arrays.
    """
    page = Page(title, lead, kind="verdicts-page", in_turn=True)
    n = Counter(ruling.verdict.outcome for ruling in rulings)
    page.write(
        f"{TEMPLATES}verdicts.html.jinja",
        signs=SIGNS,
        words=words,
        unjudged_header=rows.UNJUDGED_HEADER,
        originals_header=rows.ORIGINALS_HEADER[1:],
        attention_view=attention_view,
        worked_header=("quantity", "what it is", "value", "must be", "", "mean [range] over the judged"),
        counts=[(_count_badge(outcome), n[outcome], meaning) for outcome, meaning in MEANINGS.items()],
        discoveries=describe_discoveries(rulings),
        overview=[_overview_row(f"ruling-{i}", ruling) for i, ruling in enumerate(rulings, 1)],
        rulings=[
            {
                "place": f"ruling-{i}",
                "claim": ruling.claim,
                "examples": examples.get(ruling.claim.id, ()),
                "sources": [Markup(piece) for piece in sources.get(ruling.claim.id, ())],
                **_section(ruling),
            }
            for i, ruling in enumerate(rulings, 1)
        ],
    )
    return page


def _results(found: Verdict | PartResult) -> tuple[str, str]:
    return words.share_text(found), words.effect_text(found)


def _badge(claim: Claim, verdict: Verdict) -> dict[str, str]:
    """An outcome, and its words with the reason where there is no verdict."""
    return {"outcome": verdict.outcome, "words": words.outcome_in_short(claim, verdict)}


def _count_badge(outcome: Outcome) -> dict[str, str]:
    return {"outcome": outcome, "words": NO_VERDICT if outcome == "NOT_APPLICABLE" else words.outcome_text(outcome)}


def _overview_row(place: str, ruling: Ruling) -> _Row:
    claim, verdict = ruling.claim, ruling.verdict
    statement = {"text": claim.statement, "mark": "headline" if claim.headline else "", "source": claim.source}
    named_id = {"text": claim.id, "href": f"#{place}"}
    beside = [
        ("Favoured", words.format_favoured(ruling)),
        ("Flips", words.format_flips(ruling)),
        ("Registered", words.standing_word(ruling) + ("; confirmed" if ruling.confirmed else "")),
    ]
    cells = [named_id, statement, _badge(claim, verdict), words.recipe_text(claim), *_results(verdict)]
    return cells, [[("Why", ruling.reason)], beside]


def _section(ruling: Ruling) -> dict[str, Any]:
    """The content of the section on one claim; what its ruling lacks is empty."""
    claim, verdict, replicate = ruling.claim, ruling.verdict, ruling.evidence.replicate
    kinds = ["judged", *(["fails the gate"] if verdict.n_failed else [])]
    kinds += [kind for kind in ("positive", "negative") if any(each.kind == kind for each in claim.controls)]
    parts = list(zip(claim.criteria, verdict.parts, strict=True))
    example, over_judged = work_through(ruling), rows.format_ranges(ruling, judged=True)
    controls = control_rows(ruling)
    return {
        "ruling": ruling,
        "badge": _badge(claim, verdict),
        "replicate": replicate,
        "results": _results(verdict),
        "standing": words.sentence(words.describe_standing(ruling)),
        "earlier": [words.earlier_text(earlier) for earlier in ruling.superseded],
        "worked": example,
        "worked_rows": [_worked_row(line, over_judged) for line in example.lines] if example else [],
        "signs_shown": ", ".join(f"{LOOKS[kind].sign} {LOOKS[kind].name}" for kind in kinds),
        "strips": strip_plots(ruling),
        "unjudged": [(row, ()) for row in rows.unjudged_rows([ruling])],
        "originals": [(row[1:], ()) for row in rows.original_rows([ruling])],
        "parts": [
            ([part.name, words.format_criterion(claim, part, effect_unit(ruling, part.name)), *_results(result)], ())
            for part, result in (parts if len(parts) > 1 else ())
        ],
        "controls": [(row, ()) for row in controls],
        "n_behaved": sum(row[-1].startswith(_BEHAVED) for row in controls),
        "cells": [(["as claimed", "", _badge(claim, verdict), *_results(verdict), ""], ())]
        + [_cell_row(ruling, cell) for cell in ruling.sensitivity],
        "n_flips": len(ruling.flips),
        "has_zero": any(cell.value == words.ZERO for cell in ruling.sensitivity),
        "favoured": " ".join([words.describe_favoured(ruling), *words.describe_changed_favourites(ruling)]),
        "rivals": [
            _rival_row(rival, claim, ruling.rivals[rival.id]) for rival in claim.rivals if rival.id in ruling.rivals
        ],
        "multiverse": None if ruling.multiverse is None else _multiverse(ruling.multiverse),
        "emergence": emergence_plots(ruling),
        "emergence_seed": None if ruling.emergence is None else ruling.emergence.attrs.get("seed"),
    }


def _worked_row(line: "QuantityLine", over_judged: Mapping[str, str]) -> _Row:
    known = line.quantity
    meaning = {"text": known.words, "formula": known.formula} if known else ""
    meets = {True: "✓", False: "✗", None: ""}[line.meets]
    return [line.name, meaning, line.value, line.must_be, meets, over_judged.get(line.name, "")], ()


def _cell_row(ruling: Ruling, cell: SensitivityCell) -> _Row:
    verdict = cell.verdict
    claims = {claim.id: claim for claim in (ruling.claim, *ruling.claim.rivals)}
    whose = "" if verdict.id == ruling.claim.id else f"{verdict.id}: "
    flips = "⚑ flips" if cell.flips else "no"
    cells = [whose + cell.factor, cell.value, _badge(claims[verdict.id], verdict), *_results(verdict), flips]
    return cells, [verdict.reason] if cell.flips else []


def _multiverse(found: Multiverse) -> dict[str, Any]:
    figure, sentence = specification_curve(found)
    note = f"{found.n_agreeing} of {words.pluralise(len(found.universes), 'combination')} agree"
    return {"figure": figure, "sentence": sentence, "note": note}


def _rival_row(rival: Claim, claim: Claim, verdict: Verdict) -> _Row:
    terms = {effect_name(part.name): words.describe_quantity(rival, part.name) for part in rival.criteria}
    lines = [words.support_condition(rival, subject="It")]
    lines += [f"{name[0].upper()}{name[1:]} is {text}." for name, text in terms.items() if text]
    if rival.explanation is not None and rival.explanation is not claim.explanation:
        lines += [rival.explanation.procedure, rival.explanation.margins]
    explained = {"text": rival.statement, "lines": lines}
    return [rival.id, explained, _badge(rival, verdict), *_results(verdict)], [verdict.reason]


# ---- one replicate worked through


@dataclass(frozen=True, kw_only=True)
class QuantityLine:
    """One quantity of one replicate: its value with unit, and the requirement on it.

    `quantity` is None where the claim does not explain it. Without a requirement, `must_be` is empty and `meets` None.
    """

    name: str
    quantity: Quantity | None
    value: str
    must_be: str = ""
    meets: bool | None = None


@dataclass(frozen=True, kw_only=True)
class WorkedReplicate:
    """A replicate in numbers: the gate, the deciding effects, further measurements, and the conclusion."""

    label: str
    sentence: str
    lines: tuple[QuantityLine, ...]


def work_through(ruling: Ruling) -> WorkedReplicate | None:
    """The judged replicate in the middle of all, worked through; None where none was judged."""
    claim, evidence, which = ruling.claim, ruling.evidence, ruling.typical()
    if which is None:
        return None
    effects = evidence.effects.sel({evidence.replicate: which})
    lines, met = [], []
    if claim.gate is not None and evidence.gate is not None:
        lines.append(_gate_line(ruling, float(evidence.gate.sel({evidence.replicate: which}))))
    for part in claim.criteria:
        value = float(prompt_mean(select_effect(effects, part.name)))
        met.append(bool(part.slack(np.array([value]))[0] > 0))
        lines.append(
            QuantityLine(
                name=effect_name(part.name),
                quantity=find_quantity(claim, part.name),
                value=f"{format_number(value)} {effect_unit(ruling, part.name)}".strip(),
                must_be=part.wording,
                meets=met[-1],
            )
        )
    if isinstance(effects, xr.Dataset):
        for name, effect in effects.drop_vars([part.name for part in claim.criteria]).data_vars.items():
            value = float(prompt_mean(effect))
            shown = format_number(value) if np.isfinite(value) else "–"
            lines.append(QuantityLine(name=str(name), quantity=find_quantity(claim, str(name)), value=shown))
    holds = all(met) if claim.joined == "all" else any(met)
    label = f"{evidence.replicate} {which}"
    sentence = f"{label[0].upper()}{label[1:]} {'meets' if holds else 'does not meet'} the criterion of the claim"
    return WorkedReplicate(label=label, sentence=f"{sentence}{_how_many(claim.joined, met)}.", lines=tuple(lines))


def _gate_line(ruling: Ruling, value: float) -> QuantityLine:
    gate = ruling.claim.gate
    assert gate is not None
    bounds = [f"at least {gate.at_least:g}"] if np.isfinite(gate.at_least) else []
    bounds += [f"at most {gate.at_most:g}"] if np.isfinite(gate.at_most) else []
    explained = find_quantity(ruling.claim, GATE) or Quantity(words=gate.statement)
    return QuantityLine(
        name=GATE, quantity=explained, value=format_number(value), must_be=" and ".join(bounds), meets=True
    )


def _how_many(joined: str, met: list[bool]) -> str:
    """The number of parts that hold, where there are several."""
    if len(met) == 1:
        return ""
    needed = "all have to" if joined == "all" else "one has to"
    return f": {sum(met)} of its {len(met)} parts hold{'s' if sum(met) == 1 else ''}, and {needed}"


# ---- controls


def control_rows(ruling: Ruling) -> list[list[str]]:
    """For every control: plot column, name, kind, required result, mean and range over its cases, and if it passed."""
    return [
        [
            f"{short}: {control.name}",
            control.kind,
            words.required_control_result(ruling.claim, control),
            _control_range(ruling, control),
            _control_outcome(ruling, control),
        ]
        for short, control in short_names(ruling.claim).items()
    ]


def _control_range(ruling: Ruling, control: Control) -> str:
    effects = ruling.evidence.controls.get(control.name)
    if effects is None:
        return "not measured"
    texts = []
    for part in ruling.claim.criteria:
        values = case_means(select_effect(effects, part.name))
        spread = (
            f" [{format_number(values.min())}, {format_number(values.max())}] in {values.size} cases"
            if values.size > 1
            else ""
        )
        texts.append(f"{part.name} {format_number(float(np.mean(values)))}{spread}")
    return "; ".join(texts)


def _control_outcome(ruling: Ruling, control: Control) -> str:
    """The outcome of a control judged on its own: the first that misbehaves would hide the others."""
    effects = {name: each for name, each in ruling.evidence.controls.items() if name == control.name}
    wrong = find_control_fault(replace(ruling.claim, controls=(control,)), replace(ruling.evidence, controls=effects))
    return f"✗ no: {wrong}" if wrong else f"{_BEHAVED} yes"
