"""The table of laws, backends and architectures is what a sample of its cells gives now."""

import json
import os
import random

import pytest

from mnemoscope.models.lens import HAS_HOOKED_TRANSFORMER
from tests.hookcheck import matrix

RECORDED = json.loads(matrix.RECORDED.read_text(encoding="utf-8"))


def test_the_page_has_what_is_recorded():
    page = matrix.PAGE.read_text(encoding="utf-8")
    assert matrix.page(RECORDED, page) == page


def sampled(backend: str) -> list[str]:
    draw = random.Random(os.environ.get("SEED", "0"))
    return draw.sample(sorted(RECORDED[backend]), 1)


@pytest.mark.thorough
@pytest.mark.skipif(not HAS_HOOKED_TRANSFORMER, reason="the sample is of line 3")
@pytest.mark.parametrize("backend", ["HookedTransformer, TransformerLens 3", "plain module, adapted"])
def test_a_cell_is_what_is_measured_now(backend):
    [name] = sampled(backend)
    found, recorded = matrix.measure([name], [backend])[backend][name], RECORDED[backend][name]
    assert found.keys() == recorded.keys(), (name, found)
    assert {*found.get("broken", ())} == {*recorded.get("broken", ())}, name
    assert {*found.get("refused", ())} == {*recorded.get("refused", ())}, name
