"""Commands print on every console, and what they write is written before they print."""

import ast
import io
import sys
from pathlib import Path

import pytest

from mnemoscope.cli import analysis, main
from mnemoscope.records.record import Display
from mnemoscope.report.tables import Table

ROOT = Path(__file__).parents[2]


def place_console(monkeypatch, encoding="cp1252", stream="stdout"):
    """Print to a console of this encoding, by default that of Windows in Western Europe."""
    console = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    monkeypatch.setattr(sys, stream, console)
    return console


def printed(console):
    console.flush()
    return console.buffer.getvalue().decode(console.encoding)


@pytest.mark.parametrize("words", [["claims", "show", "T14"], ["list", "presets"]])
def test_a_console_without_unicode_shows_tables(words, monkeypatch):
    console = place_console(monkeypatch)
    main(words)
    assert words[-1] in printed(console)
    assert "+--" in printed(console)
    assert console.errors == "strict"


def test_a_refusal_is_shown_too(monkeypatch):
    console = place_console(monkeypatch, "ascii", "stderr")
    with pytest.raises(SystemExit):
        main(["claims", "run", "→"])
    assert "got '?'" in printed(console)


def test_results_are_written_before_they_are_printed(tmp_path, monkeypatch):
    place_console(monkeypatch)
    table = Table(name="one", title="heads → weights", header=["head", "weight"], rows=[["L0H0", "1"]])
    with pytest.raises(UnicodeEncodeError):  # outside of `main` this console cannot show the arrow
        analysis.present("ablate", "v3", {}, Display(tables=[table], figures=[], notes=[], finding=""), tmp_path)
    assert {file.name for file in tmp_path.iterdir()} >= {"one.csv", "ablate.html"}


def test_text_is_read_and_written_in_a_named_encoding():
    """Ruff's PLW1514 sees the paths whose type it can tell; this sees the others too."""
    calls = (
        (file, node)
        for folder in ("src", "docs", "benchmarks", "distributions")
        for file in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    )
    silent = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file, node in calls
        if node.func.attr in ("read_text", "write_text") and "encoding" not in {word.arg for word in node.keywords}
    ]
    assert silent == []
