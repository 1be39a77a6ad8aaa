"""The reference has every public name under the name that users write, each with its text."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from mnemoscope.core.renamed import public_rooms

DOCS = Path(__file__).parents[2] / "docs"
ENTRY = re.compile(r"^\.\. (?:autofunction|autoclass|py:data):: (\S+)$|^``(ms\S+)``: ", re.M)


def _reference():
    spec = importlib.util.spec_from_file_location("docs_reference", DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCE = _reference()


@pytest.mark.parametrize("room", REFERENCE.ROOMS)
def test_every_public_name_stands_under_its_public_name(room):
    listed = [one or other.replace("ms.", "mnemoscope.", 1) for one, other in ENTRY.findall(REFERENCE.page(room))]
    names = [name for name, rooms in public_rooms().items() if room in rooms and not name.startswith("_")]
    assert sorted(listed) == sorted(f"{room}.{name}" for name in names)


@pytest.mark.parametrize("room", REFERENCE.ROOMS)
def test_every_name_has_a_text(room):
    """Functions, classes and modules have docstrings, which the linter checks; constants a string below them."""
    bare = re.findall(r"^\.\. py:data:: (\S+)\n\n(?!   \S)", REFERENCE.page(room), re.M)
    assert bare == []


def test_the_page_of_the_api_leads_to_every_room():
    text = (DOCS / "api.md").read_text()
    for room in REFERENCE.ROOMS:
        assert f"(api/{room}.rst)" in text
        assert f"\napi/{room}\n" in text


def test_the_pages_are_written_where_sphinx_looks():
    tree = ast.parse((DOCS / "conf.py").read_text())
    assert "reference.page(room)" in ast.unparse(tree)
