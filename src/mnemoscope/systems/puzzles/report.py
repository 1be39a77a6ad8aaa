"""The reports on runs of the puzzles: the page of any task, with each puzzle in words and the published figures."""

from collections.abc import Mapping
from dataclasses import replace

import xarray as xr

from mnemoscope import REPORTS, Run, RunSpec, preset
from mnemoscope.models import subject
from mnemoscope.report import Page, Results, Table, plain_report
from mnemoscope.systems.puzzles.published import PUBLISHED, published_table

PAGES = {
    "palindrome": (
        "Palindromes",
        "Twenty values stand between START and END; is the sequence its own mirror image? The answer is due at END.",
    ),
    "brackets": (
        "Balanced brackets",
        "Up to forty brackets stand between START and END; are they balanced? The answer is due at START.",
    ),
    "first-unique": (
        "First unique letter",
        "Letters follow START; at every position the answer is the first letter so far that stood there once, or ?.",
    ),
    "digit-sum": (
        "Sum of two numbers",
        "Two numbers of four digits are followed by their sum, highest digits first, which is to be continued.",
    ),
    "sorted-list": (
        "Sorted lists",
        "Ten distinct values from 0 to 50 are followed by SEP, and then by the same values in ascending order.",
    ),
    "running-sum": (
        "Running sums",
        "Twenty values from -5 to 5; at every position: is the sum so far negative, zero or positive?",
    ),
}
"""Title and task in words, by task."""


def examine(run: Run) -> dict[str, xr.Dataset]:
    """Results as for any task of tokens, and the counterparts of what was published of the puzzle."""
    found, known = plain_report.examine(run), PUBLISHED.get(run.spec.task.name)
    if known is None or not _has_published_size(run.spec):
        return found
    numbers = {name: ((), value) for name, value in known.measure(subject(run)).items()}
    return {**found, "published": xr.Dataset(numbers, attrs={"task": run.spec.task.name})}


def _has_published_size(spec: RunSpec) -> bool:
    """True if a run has the inputs and heads of the published model, so that its places and heads are there."""
    published = preset(spec.task.name, "published")

    def size(each: RunSpec) -> tuple[int, ...]:
        return each.task.n_ctx, each.task.d_vocab, each.model.n_layers, each.model.n_heads

    return size(spec) == size(published)


def _published(results: Mapping[str, Results]) -> list[Table]:
    known = {label: result["published"].attrs["task"] for label, result in results.items() if "published" in result}
    return published_table(results, known)


def tables(results: Mapping[str, Results]) -> list[Table]:
    """The tables of any task of tokens, and the published figures beside ours."""
    return [*plain_report.tables(results), *_published(results)]


def page(page: Page, results: Mapping[str, Results]) -> None:
    """The sections of the page."""
    plain_report.learned_section(page, results)
    if found := _published(results):
        page.section("Beside the published figures")
        for table in found:
            page.show(table)
    for section in (plain_report.ablation_section, plain_report.training_section, plain_report.view_section):
        section(page, results)


for _name, (_title, _about) in PAGES.items():
    REPORTS.add(
        _name, replace(plain_report.PLAIN, title=_title, about=_about, analyse=examine, page=page, tables=tables)
    )
