"""Controls of a ruling as rows of text: the required result, the measured one, and the outcome."""

from dataclasses import replace

import numpy as np

from mnemoscope.claims.claim import Control
from mnemoscope.claims.evidence import named
from mnemoscope.claims.judge import misbehaviour
from mnemoscope.claims.verdict import Ruling
from mnemoscope.report.rulings.asked import must_give
from mnemoscope.report.rulings.plots import by_case, short_names
from mnemoscope.report.rulings.words import number

CONTROL_HEADER = ("control", "kind", "must be", "what it gave", "behaved")


def control_rows(ruling: Ruling) -> list[list[str]]:
    """For every control: plot column, name, kind, required result, mean and range over its cases, and if it passed."""
    return [
        [
            f"{short}: {control.name}",
            control.kind,
            must_give(ruling.claim, control),
            _gave(ruling, control),
            _behaved(ruling, control),
        ]
        for short, control in short_names(ruling.claim).items()
    ]


def _gave(ruling: Ruling, control: Control) -> str:
    effects = ruling.evidence.controls.get(control.name)
    if effects is None:
        return "not measured"
    texts = []
    for part in ruling.claim.criteria:
        values = by_case(named(effects, part.name))
        spread = f" [{number(values.min())}, {number(values.max())}] in {values.size} cases" if values.size > 1 else ""
        texts.append(f"{part.name} {number(float(np.mean(values)))}{spread}")
    return "; ".join(texts)


def _behaved(ruling: Ruling, control: Control) -> str:
    """The outcome of a control judged on its own: the first that misbehaves would hide the others."""
    effects = {name: each for name, each in ruling.evidence.controls.items() if name == control.name}
    wrong = misbehaviour(replace(ruling.claim, controls=(control,)), replace(ruling.evidence, controls=effects))
    return f"✗ no: {wrong}" if wrong else "✓ yes"
