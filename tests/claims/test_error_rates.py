"""The rates of the table in docs/verdicts.md: at most what is promised, and decisions where they are meant."""

import re

import pytest

from tests.claims.rates import PROMISED, RIGHT, WRONG
from tests.doc_examples import ROOT

_OFTEN = ("exists: five", "most: 5 0/1", "mean: kinds", "equivalence: kinds")
QUICK = [name for name in WRONG if name.startswith(_OFTEN)]


@pytest.mark.parametrize("name", QUICK)
def test_what_used_to_err_often_does_not(name):
    """Rates were .17 to .88; of 30 trials not two are wrong."""
    assert WRONG[name].rate(30) <= 1 / 30


@pytest.mark.drawn(8)
@pytest.mark.thorough
@pytest.mark.parametrize("name", WRONG)
def test_wrong_decisions_are_at_most_as_frequent_as_promised(name):
    """Tolerance: three standard errors."""
    assert WRONG[name].rate(400) <= PROMISED + 3 * (PROMISED / 400) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_the_same_at_its_size(name):
    assert WRONG[name].rate(2000, seed=1) <= PROMISED + 3 * (PROMISED / 2000) ** 0.5


@pytest.mark.thorough
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_so_is_found(name):
    assert RIGHT[name].rate(60) >= 0.9


def test_the_page_lists_every_population():
    page = (ROOT / "docs/verdicts.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (?:\.\d+|1\.0) \|$", page, re.MULTILINE)
    assert rows == [*WRONG, *RIGHT]
