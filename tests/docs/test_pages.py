"""What stands on the pages is true: code prints what is shown, commands parse, tables are those of the program."""

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path
from unittest import mock

import pytest

from mnemoscope.claims.claim import CLAIMS
from mnemoscope.cli.command import commands as all_commands
from mnemoscope.cli.command import split_command
from mnemoscope.cli.parse import parse, parse_changes
from mnemoscope.core.presets import PRESETS, SYSTEMS
from mnemoscope.core.site import ATTENTION, BY_HEAD, BY_NEURON, EMBEDDINGS, KINDS, Site
from mnemoscope.core.specification import TASKS
from mnemoscope.records.record import records
from mnemoscope.training.loop import train
from tests.support import small_spec

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("analyses/*.md")])
CODE = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", re.S)
"""A block of code and, where it follows at once, what it prints."""
CELL = re.compile(r"```\{code-cell\}[^\n]*\n(?::[^\n]*\n)*(.*?)```", re.S)
"""The code of a cell, on pages that are built as notebooks."""
RUN = "runs/v3-quick/seed-00"
"""A run that pages speak of."""


@pytest.fixture
def examples(monkeypatch):
    """Examples can be imported; what they register is forgotten afterwards."""
    monkeypatch.syspath_prepend(EXAMPLES)
    with contextlib.ExitStack() as forgotten:
        for registry in (TASKS, PRESETS, SYSTEMS, CLAIMS):
            registry.names()  # the built-in ones are there before
            forgotten.enter_context(mock.patch.dict(registry._items))
        yield
    for path in EXAMPLES.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.every_case
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.*")))
def test_the_pages_show_the_tested_files(name):
    assert any(f"{{literalinclude}} examples/{name}" in page.read_text() for page in PAGES)


def _marks(page: Path) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.lm,) if page.stem == "language_models" else ()


@pytest.mark.drawn(14)
@pytest.mark.thorough
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=_marks(page), id=page.stem) for page in PAGES if CODE.search(page.read_text())]
)
@pytest.mark.usefixtures("examples")
def test_the_code_of_a_page_prints_what_stands_below_it(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks, names = CODE.findall(page.read_text()), {}
    if RUN in blocks[0][0]:
        train(small_spec("v3", seed=0), tmp_path / RUN)
    for code, expected in blocks:
        if ".show()" in code:  # trains for minutes and opens a browser; `test_readme` runs a short form
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert printed.getvalue().split() == expected.split(), code


@pytest.mark.drawn(2)
@pytest.mark.thorough
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=_marks(page), id=page.stem) for page in PAGES if CELL.search(page.read_text())]
)
@pytest.mark.usefixtures("examples")
def test_the_cells_of_a_page_run(page, tmp_path, monkeypatch):
    """They assert what the page says; what they print is read by nobody here."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for cell in CELL.findall(page.read_text()):
        exec(cell, names)


def test_every_page_of_an_analysis_has_code_that_is_run():
    pages = list(DOCS.glob("analyses/*.md"))
    assert len(pages) >= 8
    for page in pages:
        assert any(expected for _, expected in CODE.findall(page.read_text())), page


def test_every_page_of_an_analysis_says_what_it_shows_and_what_not():
    for page in DOCS.glob("analyses/*.md"):
        text = page.read_text()
        shows, shows_not = (re.findall(rf"^\*{words}\*", text, re.M) for words in ("Shows", "Does not show"))
        assert len(shows) == len(shows_not) > 0, page


def test_the_table_of_sites_is_that_of_the_code():
    rows = re.findall(r"^\| `(\w+)` \| (batch .*?) \| `(.*?)` \|", (DOCS / "interventions.md").read_text(), re.M)
    assert {kind: hook for kind, _, hook in rows} == {
        kind: Site(kind=kind, layer=None if kind in EMBEDDINGS else 0).hook for kind in KINDS
    }
    assert {kind for kind, axes, _ in rows if "head" in axes} == set(BY_HEAD)
    assert {kind for kind, axes, _ in rows if "key" in axes} == set(ATTENTION)
    assert {kind for kind, axes, _ in rows if "d_mlp" in axes or "feature" in axes} == set(BY_NEURON)


def commands() -> list[str]:
    """Every command line in the bash blocks of the pages."""
    blocks = [re.findall(r"```bash\n(.*?)```", page.read_text(), re.S) for page in PAGES]
    lines = [line for page in blocks for block in page for line in block.splitlines()]
    return [line for line in lines if line.startswith("mnemoscope ")]


@pytest.mark.parametrize("line", commands())
@pytest.mark.every_case
def test_the_commands_on_the_pages_parse(line, monkeypatch):
    monkeypatch.chdir(EXAMPLES)  # the configuration file lies there
    found = split_command(shlex.split(line.partition(" > ")[0])[1:])  # the rest is the shell's
    assert found is not None
    options = parse(*found)
    for preset in getattr(options, "preset", ()):
        PRESETS.get(preset)
    parse_changes(getattr(options, "set", ()))


def test_the_pages_show_every_command():
    """Analyses that no line shows stand on the page that is made from the records."""
    assert "```{records}" in (DOCS / "records.md").read_text()
    shown = {split_command(line.split()[1:])[0] for line in commands()}
    assert shown | set(records()) == set(all_commands())
