"""Verdicts as rows of plain text."""

import textwrap
from collections.abc import Iterable

from mnemoscope.judging.verdict import Ruling
from mnemoscope.viz.rulings.words import effect_text, outcome_text, share_text

VERDICT_HEADER = ("id", "statement", "verdict", "share", "effect", "why")
LONGEST = 72
"""Characters of a statement."""


def verdict_rows(rulings: Iterable[Ruling]) -> list[list[str]]:
    """For every ruling: id, statement in short, outcome, share and effect with 95 % intervals, and the reason."""
    return [
        [
            ruling.claim.id,
            textwrap.shorten(ruling.claim.statement, LONGEST, placeholder=" …"),
            outcome_text(ruling.verdict.outcome),
            share_text(ruling.verdict),
            effect_text(ruling.verdict),
            ruling.verdict.reason,
        ]
        for ruling in rulings
    ]
