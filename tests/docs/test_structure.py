"""The pages are grouped by need, each opens with its benefit, and what they list is what there is."""

import re
import tomllib
from pathlib import Path

import pytest

from mnemoscope.cli.command import PATHS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(
    page.relative_to(DOCS).with_suffix("").as_posix() for page in [*DOCS.glob("*.md"), *DOCS.glob("analyses/*.md")]
)
GROUPS = ["Start", "Tutorials", "How to", "Reference", "Science", "About"]
TOCTREE = re.compile(r"```\{toctree\}\n(?::caption: (?P<caption>[^\n]+)\n)?.*?\n\n(?P<pages>.*?)```", re.DOTALL)
SETTINGS = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]
MOST_WORDS = 65
"""In the first paragraph of a page."""


def text(page: str) -> str:
    return (DOCS / f"{page}.md").read_text()


def test_every_page_is_in_one_group():
    groups = {found["caption"]: found["pages"].split() for found in TOCTREE.finditer(text("index"))}
    assert list(groups) == GROUPS
    inner = [
        page for name in ("analyses",) for found in TOCTREE.finditer(text(name)) for page in found["pages"].split()
    ]
    listed = ["index", *(page for pages in groups.values() for page in pages), *inner]
    assert sorted(listed) == PAGES


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.every_case
def test_a_page_opens_with_what_the_reader_gets(page):
    """The first thing below the title is a paragraph that is soon read."""
    below = re.sub(r"\A---\n.*?\n---\n", "", text(page), flags=re.DOTALL).strip().partition("\n")[2].strip()
    paragraph = below.split("\n\n")[0]
    assert paragraph[0].isalpha() or paragraph.startswith("`import")
    assert paragraph.endswith((".", ":"))
    assert 5 < len(paragraph.split()) <= MOST_WORDS


def test_the_four_paths_are_those_of_the_program():
    assert re.findall(r"```bash\n(.*?)\n```", text("paths")) == list(PATHS.values())


def test_the_table_of_extras_has_all_and_no_dependency_is_pinned():
    """A Colab keeps its own torch: versions are bounds."""
    rows = "".join(re.findall(r"^\| (`.*?) \|", text("install"), re.M))
    assert set(re.findall(r"`([a-z]+)`", rows)) == set(SETTINGS["optional-dependencies"])
    assert not [each for each in SETTINGS["dependencies"] if "==" in each]
    [torch] = [each for each in SETTINGS["dependencies"] if each.startswith("torch")]
    assert f"`{torch}`" in text("install")


def test_the_comparison_has_a_source_and_a_cell_for_every_project():
    rows = [line for line in text("compared").splitlines() if line.startswith("| ")]
    versions, cells = rows[2:8], rows[8:]
    assert all(re.search(r"\(https://github.com/[\w./-]+\) \| [\d.]+ \| \w+ 20\d\d \|", row) for row in versions[1:])
    names = [row.split(" |")[0].strip("| []").partition("]")[0] for row in versions]
    assert cells[0].strip("| ").split(" | ") == names
    assert len(cells) > 12
    assert {row.count(" |") for row in cells} == {len(names) + 1}


def test_contributors_get_two_pages_and_every_lane():
    """Targets that are named exist, and what `.ci/run` runs has a row among the lanes."""
    root = DOCS.parent
    contributing, lanes = (root / "CONTRIBUTING.md").read_text(), text("lanes")
    assert len(contributing.split()) <= 1250
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.M))
    first_cells = re.findall(r"^\| (`[^|]*) \|", contributing.split("## The room")[0], re.M)
    named = set(re.findall(r"`([a-z-]+)`", "".join(first_cells))) | set(
        re.findall(r"`make ([a-z-]+)", contributing + lanes)
    )
    assert named <= targets
    run = re.findall(r"^[ \w=.]*\blane(?:s_of_one_process)? ([a-z ./-]+)$", (root / ".ci" / "run").read_text(), re.M)
    ran = {lane for line in run for lane in line.split() if not lane.startswith(".venv")}
    assert {"test", "test-full", "test-bench", "lint-js"} <= ran
    assert ran <= set(re.findall(r"^\| `make ([a-z-]+)`", lanes, re.M))
