"""Plain English: patterns that make a reader decode a sentence stay out of docstrings, comments and pages."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted((ROOT / "experiments").glob("*/README.md"))
PAGES = [page for page in PAGES if "_build" not in page.parts and "api" not in page.parts]
TEXTS = sorted((ROOT / "src").rglob("texts.yaml"))

BEGINNING = re.compile(r"(Of|What|Whether|Those|Which|How|Where|That)\b")
"""A docstring names a thing or an action first."""
PHRASE = re.compile(
    r"\b(that is due|(?:is|are) asked of|sets? in\b(?! (?:a|place)\b)|lets? go of|(?:is|are) said of|spoken of|is told"
    r"|said again)\b"
)
FIXED = ("statement", "name")
"""Keywords of claims and of prompts that are registered with them: their texts stay."""
LONGEST = 40
"""Words of a sentence; the aim is 30."""
MOST_LONG = 0.02
"""Share of sentences that may have more than 30 words."""


@functools.cache
def docstrings() -> list[tuple[str, str]]:
    nodes = [(path, node) for path in SOURCES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    return [
        (f"{path.relative_to(ROOT)}: {getattr(node, 'name', 'module')}", text)
        for path, node in nodes
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and (text := ast.get_docstring(node))
    ]


def fixed_lines(text: str) -> set[int]:
    """Lines of a module that hold registered texts: statements of claims, those of rivals too, and names of prompts."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    fixed = [word.value for call in calls for word in call.keywords if word.arg in FIXED]
    fixed += [call.args[1] for call in calls if ast.unparse(call.func).endswith(".rival") and len(call.args) > 1]
    return {line for node in fixed for line in range(node.lineno, (node.end_lineno or 0) + 1)}


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text without code, tables and headings."""
    text = re.sub(r"^---.*?^---|^(`{3,}|~{3,}).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*:|] )", text):
        table = re.search(r"\S {2,}\S", paragraph)
        if not table and not paragraph.lstrip().startswith(("|", "#", "<")):
            yield from re.split(r"(?<=[.!?:;])\s+", " ".join(paragraph.split()))


def n_words(sentence: str) -> int:
    """Number of words; signs of a formula count as none."""
    return sum(any(letter.isalnum() for letter in word) for word in sentence.split())


def test_docstrings_begin_with_a_thing_or_an_action():
    assert [f"{where}: {text[:60]}" for where, text in docstrings() if BEGINNING.match(text)] == []


@pytest.mark.every_case
@pytest.mark.parametrize("pages", [SOURCES, PAGES, TEXTS], ids=["sources", "pages", "texts"])
def test_no_phrase_has_to_be_decoded(pages):
    found = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        fixed = fixed_lines(text) if page.suffix == ".py" else set()
        for number, line in enumerate(text.split("\n"), 1):
            if number not in fixed and not line.startswith("|"):  # tables quote statements
                found += [f"{page.relative_to(ROOT)}:{number}: {match[0]}" for match in PHRASE.finditer(line)]
    assert found == []


def test_sentences_are_short():
    texts = [*docstrings(), *((str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")) for page in PAGES)]
    lengths = [(n_words(each), f"{where}: {each[:80]}") for where, text in texts for each in sentences(text)]
    assert [place for n, place in lengths if n > LONGEST] == []
    assert sum(n > 30 for n, _ in lengths) <= MOST_LONG * len(lengths)


def test_the_patterns_find_what_they_are_for():
    assert BEGINNING.match("Of each head, the score.")
    assert PHRASE.search("The name that is due comes first.")
    assert list(sentences("One is here. Two\nare there.\n\n| a | table |\n\n```\ncode. code.\n```")) == [
        "One is here.", "Two are there.", ""
    ]  # fmt: skip
    assert fixed_lines('Claim(\n  id="a",\n  statement="b "\n  "c",\n)\nc.rival("d", "e")') == {3, 4, 6}
    assert n_words("a + b = |c| and more") == 5
