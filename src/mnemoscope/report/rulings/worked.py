"""One replicate of a ruling worked through: each quantity with its meaning, its value there, and the requirement."""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from mnemoscope.claims.claim import GATE
from mnemoscope.claims.evidence import named, prompt_mean
from mnemoscope.claims.explanation import Quantity
from mnemoscope.claims.verdict import Ruling
from mnemoscope.report.rulings.asked import effect_name, quantity
from mnemoscope.report.rulings.words import number, unit_of


@dataclass(frozen=True, kw_only=True)
class Line:
    """One quantity of one replicate: its value with unit, and the requirement on it.

    `quantity` is None where the claim does not explain it. Without a requirement, `must_be` is empty and `meets` None.
    """

    name: str
    quantity: Quantity | None
    value: str
    must_be: str = ""
    meets: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Worked:
    """A replicate in numbers: the gate, the deciding effects, further measurements, and the conclusion."""

    label: str
    sentence: str
    lines: tuple[Line, ...]


def worked(ruling: Ruling) -> Worked | None:
    """The judged replicate in the middle of all, worked through; None where none was judged."""
    claim, evidence, which = ruling.claim, ruling.evidence, ruling.typical()
    if which is None:
        return None
    effects = evidence.effects.sel({evidence.replicate: which})
    lines, met = [], []
    if claim.gate is not None and evidence.gate is not None:
        value = float(evidence.gate.sel({evidence.replicate: which}))
        lines.append(_gate_line(ruling, value))
    for part in claim.criteria:
        value = float(prompt_mean(named(effects, part.name)))
        met.append(bool(part.slack(np.array([value]))[0] > 0))
        unit = unit_of(ruling, part.name)
        lines.append(
            Line(
                name=effect_name(part.name),
                quantity=quantity(claim, part.name),
                value=f"{number(value)} {unit}".strip(),
                must_be=part.wording,
                meets=met[-1],
            )
        )
    if isinstance(effects, xr.Dataset):
        for name, effect in effects.drop_vars([part.name for part in claim.criteria]).data_vars.items():
            value = float(prompt_mean(effect))
            shown = number(value) if np.isfinite(value) else "–"
            lines.append(Line(name=str(name), quantity=quantity(claim, str(name)), value=shown))
    holds = all(met) if claim.joined == "all" else any(met)
    label = f"{evidence.replicate} {which}"
    sentence = f"{label[0].upper()}{label[1:]} {'meets' if holds else 'does not meet'} the criterion of the claim"
    return Worked(label=label, sentence=f"{sentence}{_how_many(claim.joined, met)}.", lines=tuple(lines))


def _gate_line(ruling: Ruling, value: float) -> Line:
    gate = ruling.claim.gate
    assert gate is not None
    bounds = [f"at least {gate.at_least:g}"] if np.isfinite(gate.at_least) else []
    bounds += [f"at most {gate.at_most:g}"] if np.isfinite(gate.at_most) else []
    explained = quantity(ruling.claim, GATE) or Quantity(words=gate.statement)
    return Line(name=GATE, quantity=explained, value=number(value), must_be=" and ".join(bounds), meets=True)


def _how_many(joined: str, met: list[bool]) -> str:
    """The number of parts that hold, where there are several."""
    if len(met) == 1:
        return ""
    needed = "all have to" if joined == "all" else "one has to"
    return f": {sum(met)} of its {len(met)} parts hold{'s' if sum(met) == 1 else ''}, and {needed}"
