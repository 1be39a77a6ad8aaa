"""A report as rows of tables, as JSON, and as JUnit XML, in which every law is a test."""

import json
import math
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from mnemoscope.core.version import __version__
from mnemoscope.hookcheck.check import Report
from mnemoscope.hookcheck.law import Finding
from mnemoscope.hookcheck.laws import LAWS

LAW_COLUMNS = ("family", "law", "outcome", "by how much", "where, or why not")
ANALYSIS_COLUMNS = ("analysis", "may be believed", "laws that are broken or refused")


def law_rows(report: Report) -> list[tuple[str, ...]]:
    """A row for every law."""
    return [
        (LAWS[name].family, name, finding.outcome, _amount_text(finding), finding.reason or _places(finding.points))
        for name, finding in report.findings.items()
    ]


def analysis_rows(report: Report) -> list[tuple[str, ...]]:
    """A row for every analysis that relies on a law that was checked."""
    return [(name, _trust(laws), ", ".join(laws)) for name, laws in report.analyses().items()]


def _trust(lacking: Sequence[str]) -> str:
    """An answer from the laws that a model breaks or refuses."""
    kinds = [LAWS[name].kinds for name in lacking]
    if not all(kinds):
        return "no"
    return f"except at {', '.join(dict.fromkeys(kind for each in kinds for kind in each))}" if kinds else "yes"


def breach_lines(report: Report) -> list[str]:
    """A line for every broken law, with the smallest input that shows it."""
    return [report.findings[name].describe(LAWS[name]) for name in report.broken]


def to_json(report: Report) -> str:
    """Everything in a report, with each law's sentence and reason."""
    laws = [
        {
            "name": name,
            "family": LAWS[name].family,
            "sentence": LAWS[name].sentence,
            "reason": LAWS[name].reason,
            "threads": list(LAWS[name].threads),
            "outcome": finding.outcome,
            "amount": _finite(finding.amount),
            "points": list(finding.points),
            "why": finding.reason,
            "smallest": finding.smallest,
        }
        for name, finding in report.findings.items()
    ]
    content: dict[str, Any] = {"model": report.model, "mnemoscope": __version__, "holds": report.holds}
    analyses = {name: list(broken) for name, broken in report.analyses().items()}
    return json.dumps({**content, "laws": laws, "analyses": analyses}, indent=2, ensure_ascii=False) + "\n"


def to_junit(report: Report) -> str:
    """A suite of tests: broken laws are failures; laws that are refused or do not apply are skipped."""
    counts = {"tests": len(report.findings), "failures": len(report.broken)}
    skipped = len(report.findings) - report.count("holds") - len(report.broken)
    totals = {name: str(value) for name, value in {**counts, "skipped": skipped}.items()}
    suite = ElementTree.Element("testsuite", {"name": f"hookcheck {report.model}", **totals})
    for name, finding in report.findings.items():
        case = ElementTree.SubElement(suite, "testcase", classname=f"hookcheck.{LAWS[name].family}", name=name)
        if finding.outcome == "broken":
            ElementTree.SubElement(case, "failure", message=finding.describe(LAWS[name]))
        elif finding.outcome != "holds":
            ElementTree.SubElement(case, "skipped", message=f"{finding.outcome}: {finding.reason}")
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _amount_text(finding: Finding) -> str:
    return f"{finding.amount:.2g}" if finding.outcome == "broken" else ""


def _places(points: Sequence[str]) -> str:
    shown = ", ".join(points[:2])
    return f"{shown} and {len(points) - 2} more" if len(points) > 2 else shown


def _finite(amount: float | None) -> float | str | None:
    """A number that JSON can hold."""
    return "infinite" if amount is not None and not math.isfinite(amount) else amount
