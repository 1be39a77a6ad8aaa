"""The table of laws, backends and architectures is what a sample of its cells gives now."""

import importlib.util
import json
import os
import random
from pathlib import Path

import pytest

from mnemoscope.models.lens import HAS_HOOKED_TRANSFORMER

DOCS = Path(__file__).parents[2] / "docs"
RECORDED = json.loads((DOCS / "hookcheck_matrix.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def matrix():
    spec = importlib.util.spec_from_file_location("hookcheck_matrix", DOCS / "hookcheck_matrix.py")
    module = importlib.util.module_from_spec(spec)
    cache = os.environ.get("MNEMOSCOPE_CACHE")
    spec.loader.exec_module(module)
    yield module
    if cache is not None:
        os.environ["MNEMOSCOPE_CACHE"] = cache


def test_the_page_has_what_is_recorded(matrix):
    page = (DOCS / "hookcheck_matrix.md").read_text(encoding="utf-8")
    assert matrix.page(RECORDED, page) == page


def sampled(backend: str) -> list[str]:
    draw = random.Random(os.environ.get("SEED", "0"))
    return draw.sample(sorted(RECORDED[backend]), 1)


@pytest.mark.thorough
@pytest.mark.skipif(not HAS_HOOKED_TRANSFORMER, reason="the sample is of line 3")
@pytest.mark.parametrize("backend", ["HookedTransformer, TransformerLens 3", "plain module, adapted"])
def test_a_cell_is_what_is_measured_now(matrix, backend):
    [name] = sampled(backend)
    found, recorded = matrix.measure([name], [backend])[backend][name], RECORDED[backend][name]
    assert found.keys() == recorded.keys(), (name, found)
    assert {*found.get("broken", ())} == {*recorded.get("broken", ())}, name
    assert {*found.get("refused", ())} == {*recorded.get("refused", ())}, name
