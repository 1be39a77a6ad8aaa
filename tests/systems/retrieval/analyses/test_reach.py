"""How many layers it takes to know what stands elsewhere: counted, searched, and by the formulas."""

import math

import pytest

from mnemoscope import InputError
from mnemoscope.systems.retrieval.analyses import bound, first_layers, least_layers


def ceiling(value: float) -> int:
    return math.ceil(value - 1e-9)


@pytest.mark.parametrize("n_steps", range(1, 31))
def test_without_a_mask_it_takes_the_logarithm_to_base_three(n_steps):
    assert least_layers(n_steps) == ceiling(math.log(4 * n_steps + 1, 3))
    assert bound(n_steps) == pytest.approx(math.log(2 * n_steps) / math.log(3))
    assert least_layers(n_steps) >= bound(n_steps), "the published bound is one"


@pytest.mark.parametrize("n_steps", range(1, 31))
def test_with_a_mask_it_takes_the_logarithm_to_base_two(n_steps):
    assert least_layers(n_steps, mask="forward") == ceiling(math.log2(2 * n_steps + 1))


@pytest.mark.parametrize("n_steps", [1, 2, 3])
@pytest.mark.parametrize("mask", ["none", "forward", "backward"])
def test_layers_of_one_head_take_the_logarithm_to_base_two(n_steps, mask):
    assert least_layers(n_steps, mask=mask, one_head=True) == ceiling(math.log2(2 * n_steps + 1))


@pytest.mark.parametrize("n_steps", range(1, 10))
def test_neither_a_mask_nor_fewer_heads_need_fewer_layers(n_steps):
    least = least_layers(n_steps)
    for mask in ("forward", "backward"):
        assert least_layers(n_steps, mask=mask) >= least


def test_the_induction_problem_takes_two_layers_though_the_published_bound_allows_one():
    """One pair and the query: in the first layer x1 learns what stands before it, in the second the query finds it."""
    assert ceiling(bound(1)) == 1
    assert least_layers(1) == least_layers(1, mask="forward", one_head=True) == 2


def test_what_a_place_knows_spreads_as_by_hand():
    """D = 1, masked: places are the query, x0 and x1; pieces p0 x0 p1 x1."""
    table = first_layers(1, 3, mask="forward")
    nan = math.nan
    expected = [[0, 0, 1, 2], [nan, 0, 0, nan], [nan, 1, 0, 0]]
    assert table.piece.values.tolist() == ["p0", "x0", "p1", "x1"]
    assert [[str(v) for v in row] for row in table.values.tolist()] == [
        [str(float(v)) for v in row] for row in expected
    ]


def test_the_table_and_the_count_agree():
    for mask in ("none", "forward", "backward"):
        for n_steps in (1, 2, 3, 5):
            table = first_layers(n_steps, 6, mask=mask)
            assert table.sel(place=0, piece=f"x{n_steps}").item() == least_layers(n_steps, mask=mask)


def test_wrong_arguments_are_refused():
    for arguments in ({"n_steps": 0}, {"n_steps": 5, "one_head": True}):
        with pytest.raises(InputError):
            least_layers(**arguments)
