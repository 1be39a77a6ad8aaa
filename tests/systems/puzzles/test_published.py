"""The figures that were published of the originals: what we measure on these, and the table beside the seeds."""

import pytest
import xarray as xr

from mnemoscope.models import load_original
from mnemoscope.systems.puzzles.constructed.sorted_list import TASK, by_owner
from mnemoscope.systems.puzzles.published import PUBLISHED, of_sorted_lists, published_table
from tests.originals import original_file
from tests.systems.on_trial import on

FILES = {"palindrome": "palindrome", "sorted-list": "sorted-list", "running-sum": "cumsum", "brackets": "brackets"}
"""Names of the files by puzzle."""
FAR = {"difference": 0.05, "less": 0.12, "more": 0.15, "nested": 1e-6}
"""Sequences are drawn anew, and of palindromes most of the loss lies on few of them."""


@pytest.mark.parametrize("task", sorted(PUBLISHED))
def test_the_originals_give_the_published_figures(task):
    found = PUBLISHED[task].measure(load_original(original_file(FILES[task]), task))
    assert set(found) == set(PUBLISHED[task].figures)
    for name, (_, value, _) in PUBLISHED[task].figures.items():
        assert found[name] == pytest.approx(value, abs=FAR.get(name, 0.03)), name


def test_the_head_with_more_values_is_needed_more():
    few = on(by_owner(TASK, [int(value < 5) for value in TASK.answers]), TASK)
    found = of_sorted_lists(few)
    assert 0 < found["less"] < found["more"]


def test_the_table_has_every_figure_with_its_place_among_the_seeds():
    numbers = {"less": ("seed", [0.5, 1.0, 1.5]), "more": ("seed", [2.0, 3.0, 4.0])}
    seeds = xr.Dataset(numbers, coords={"seed": [0, 1, 2]})
    (table,) = published_table({"a": {"published": seeds}, "b": {}}, {"a": "sorted-list"})
    assert [row[0] for row in table.rows] == ["a", "a"]
    assert [row[2:] for row in table.rows] == [
        ["0.920", "1.000 [0.500, 1.500]", "typical: rank 2 of 4"],
        ["4.963", "3.000 [2.000, 4.000]", "beyond all seeds: rank 4 of 4"],
    ]
    one = {"a": {"published": seeds.isel(seed=[0])}}
    assert {row[-1] for row in published_table(one, {"a": "sorted-list"})[0].rows} == {"–"}
    assert published_table({"b": {}}, {}) == []
