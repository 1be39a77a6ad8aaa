"""The known limits of TransformerLens that the page names, tried on the line that is installed."""

import re
from pathlib import Path

import pytest

from mnemoscope.models.building import silence_deprecation
from mnemoscope.models.lens import HAS_HOOKED_TRANSFORMER

PAGE = (Path(__file__).parents[2] / "docs" / "transformerlens_4.md").read_text()
BLOCK = re.compile(r"```\{code-block\} python\n:name: limit-(\w+)-(\w+)\n\n(.*?)```", re.DOTALL)
LIMITS = {(line, name): code for line, name, code in BLOCK.findall(PAGE)}
HERE = {key: code for key, code in LIMITS.items() if key[0] in ("any", "3" if HAS_HOOKED_TRANSFORMER else "4")}


@pytest.mark.parametrize("code", HERE.values(), ids=["-".join(key) for key in HERE])
def test_a_known_limit_is_still_there(code):
    """Where this fails TransformerLens was mended: the limit leaves the page, and the way around it the code."""
    with silence_deprecation():
        exec(code, {})


def test_every_line_has_some_and_each_is_marked():
    assert {line for line, _ in LIMITS} == {"any", "3", "4"}
    assert PAGE.count("```{code-block}") == len(LIMITS)
