"""The page that shows two models, or two configurations, beside each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
import xarray as xr

from mnemoscope.report.comparison import Names
from mnemoscope.report.page import Page, attention_view
from mnemoscope.report.tables import Table

STYLE = (
    ".pair { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); gap: 0 1.5rem; } "
    ".pair > div { min-width: 0; }"
)


@dataclass(frozen=True, kw_only=True)
class OneSequence:
    """The results of two models on one sequence, each with the label of the first and of the second."""

    title: str
    patterns: Sequence[xr.Dataset]
    """As `attention_view` takes them."""
    roles: Sequence[Mapping[str, str]]
    predictions: Sequence[go.Figure]
    """Empty for vectors."""
    caption: str
    """The caption under the predictions."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The content of the page."""

    title: str
    lead: str
    notes: Sequence[str]
    names: Names
    specification: Table
    skills: Table
    skill_figure: go.Figure
    places: Sequence[Table]
    """The places where predictions differ; empty for vectors."""
    sequence: OneSequence
    ablation: Table | None
    """None where parts cannot be removed."""
    ablation_figure: go.Figure | None

    @property
    def tables(self) -> list[Table]:
        """All tables of the page."""
        return [self.specification, self.skills, *self.places, *([self.ablation] if self.ablation else [])]


def comparison_page(shown: Compared) -> Page:
    """Differences, skills, predictions, attention beside each other, and the loss without each part."""
    page = Page(shown.title, shown.lead, style=STYLE)
    for note in shown.notes:
        page.text(note)
    page.section("Specification")
    if shown.specification.rows:
        page.show(shown.specification)
    else:
        page.text(f"{shown.specification.title.capitalize()}.")
    page.section("Skills")
    page.figure(shown.skill_figure, "Dots are seeds, bars their mean.")
    page.show(shown.skills)
    sequence = shown.sequence
    if shown.places or sequence.predictions:
        page.section("Predictions")
        for table in shown.places:
            page.show(table)
        if sequence.predictions:
            page.heading(sequence.title)
            _beside(page, shown.names, [(page.figure, (figure, sequence.caption)) for figure in sequence.predictions])
    page.section("Attention")
    page.text(
        f"{sequence.title}. Rows are queries, columns keys; select a head to see it in full size. Heads stand in the "
        "order in which they are needed for the first skill. Patterns are correlational."
    )
    sides = zip(sequence.patterns, sequence.roles, strict=True)
    _beside(page, shown.names, [(_view, (page, patterns, roles)) for patterns, roles in sides])
    if shown.ablation is not None and shown.ablation_figure is not None:
        page.section("Removing one part")
        page.text(
            "Heads are named on one half of the prompts, all numbers are from the other half. This shows what a skill "
            "needs with the rest of the model as it is, not what the part computes."
        )
        page.figure(shown.ablation_figure, "Dots are seeds, bars their mean.")
        page.show(shown.ablation)
    return page


def _view(page: Page, patterns: xr.Dataset, roles: Mapping[str, str]) -> None:
    """Heads under names that are short enough for the view, H1 and so on, in the order of the roles."""
    short = {head: f"H{i}" for i, head in enumerate(roles, 1)}
    caption = ", ".join(f"{short[head]}: {role} ({head})" for head, role in roles.items())
    attention_view(page, patterns, caption, short)


def _beside(page: Page, names: Names, parts: Sequence[tuple[Any, tuple[Any, ...]]]) -> None:
    """Two pieces of the page beside each other where there is room, else one below the other."""
    page.block('<div class="pair">')
    for name, (add, arguments) in zip(names, parts, strict=True):
        page.block("<div>")
        page.heading(name)
        add(*arguments)
        page.block("</div>")
    page.block("</div>")
