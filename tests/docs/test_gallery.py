"""The gallery shows pictures that its own lines drew; `test_pages` runs the lines."""

import importlib.util
import json
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
MOST_LINES, MOST_BYTES = 14, 600_000
"""Lines behind a picture, and the size of all pictures."""


@pytest.fixture(scope="module")
def gallery():
    spec = importlib.util.spec_from_file_location("docs_gallery", DOCS / "gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_that_of_its_lines(gallery):
    """After a change of lines: `python docs/gallery.py NAME`."""
    blocks = gallery.blocks()
    assert len(blocks) >= 12
    assert len(blocks) == gallery.PAGE.read_text().count("```python")
    assert json.loads(gallery.MADE.read_text()) == {file: gallery.digest(code) for file, code in blocks.items()}
    pictures = {path.name: path.stat().st_size for path in gallery.PLACE.glob("*.[sp][vn]g")}
    assert set(pictures) == set(blocks)
    assert min(pictures.values()) > 5_000
    assert sum(pictures.values()) <= MOST_BYTES


def test_the_lines_are_few_and_end_with_a_figure(gallery):
    for file, code in gallery.blocks().items():
        assert len(code.splitlines()) <= MOST_LINES, file
        assert code.splitlines()[-1].startswith(
            ("figure =", "[figure] =", "caption, figure =", "[(caption, figure)] =")
        ), file


def test_a_style_is_written_once(gallery):
    short = gallery._shorten('<svg a="1"><g style="x: 1;"/><g style="x: 1;"/></svg>')
    assert short == '<svg a="1"><style>[s="0"]{x: 1;}</style><g s="0"/><g s="0"/></svg>'
