"""The quick lane and its rest: what they leave out, and that a seed repeats it."""

from unittest import mock

import pytest

from tests import conftest

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnknownMarkWarning")
SOURCE = """
import pytest

@pytest.mark.full
def test_long(): ...

def test_short(): ...

@pytest.mark.parametrize("n", range(20))
def test_product(n): ...

@pytest.mark.sampled(1)
@pytest.mark.parametrize("n", range(20))
def test_costly_product(n): ...

@pytest.mark.every_case
@pytest.mark.parametrize("n", range(20))
def test_cheap_product(n): ...

@pytest.mark.drawn(3)
@pytest.mark.parametrize("n", range(20))
def test_vast_product(n): ...

@pytest.mark.drawn(1, of="pair")
def test_first_of_pair(): ...

@pytest.mark.drawn(1, of="pair")
def test_second_of_pair(): ...
"""


@pytest.fixture
def items(pytester):
    return pytester.getitems(SOURCE)


def kept(
    items, monkeypatch, *, quick: bool = True, rest: bool = False, draw: bool = False, share: float = 1, seed: int = 0
) -> list[str]:
    monkeypatch.setattr(conftest, "QUICK", quick)
    monkeypatch.setattr(conftest, "REST", rest)
    monkeypatch.setattr(conftest, "DRAW", draw)
    monkeypatch.setattr(conftest, "SHARE", share)
    monkeypatch.setattr(conftest, "SEED", seed)
    left = [*items]
    conftest.pytest_collection_modifyitems(mock.Mock(), left)
    return [item.name for item in left]


@pytest.mark.full
def test_the_quick_lane_keeps_a_sample_and_the_full_lane_everything(items, monkeypatch):
    names = kept(items, monkeypatch)
    numbers = {name: sum(each.startswith(f"test_{name}") for each in names) for name in ("long", "short", "product")}
    assert numbers == {"long": 0, "short": 1, "product": conftest.CASES}
    assert sum(name.startswith("test_costly") for name in names) == 1
    assert sum(name.startswith("test_cheap") for name in names) == 20
    assert len(kept(items, monkeypatch, quick=False)) == 84


@pytest.mark.full
def test_the_quick_lane_and_its_rest_are_every_test_once(items, monkeypatch):
    """Continuous integration runs these two: a test in neither would never run."""
    everything = kept(items, monkeypatch, quick=False)
    both = kept(items, monkeypatch, seed=3) + kept(items, monkeypatch, quick=False, rest=True, seed=3)
    assert sorted(both) == sorted(everything)


@pytest.mark.full
def test_a_seed_repeats_a_sample_and_another_draws_another(items, monkeypatch):
    assert kept(items, monkeypatch, seed=1) == kept(items, monkeypatch, seed=1)
    assert kept(items, monkeypatch, seed=1) != kept(items, monkeypatch, seed=2)


@pytest.mark.full
def test_cases_are_drawn_of_marked_tests_only(items, monkeypatch):
    names = kept(items, monkeypatch, quick=False, draw=True)
    assert sum(name.startswith("test_vast") for name in names) == 3
    assert sum(name.endswith("of_pair") for name in names) == 1
    assert len(names) == 84 - 17 - 1


@pytest.mark.full
def test_a_share_of_the_cases_is_run_and_every_test(items, monkeypatch):
    names = kept(items, monkeypatch, quick=False, share=0.4)
    numbers = {name: sum(each.startswith(f"test_{name}") for each in names) for name in ("short", "product", "cheap")}
    assert numbers == {"short": 1, "product": 8, "cheap": 20}
    assert names == kept(items, monkeypatch, quick=False, share=0.4)
    assert names != kept(items, monkeypatch, quick=False, share=0.4, seed=1)
    drawn = kept(items, monkeypatch, quick=False, draw=True, share=0.4)
    assert sum(name.startswith("test_vast") for name in drawn) == 3
    rest = kept(items, monkeypatch, quick=False, rest=True, share=0.4)
    assert not {*rest} & {*kept(items, monkeypatch)}
