import pytest
import torch

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.patterns import (
    Mechanism,
    check_names,
    checked_pattern,
    identity,
    previous,
    uniform,
    unspecified_queries,
    with_fallback,
)


def batch(n: int = 2, n_pos: int = 3) -> Batch:
    tokens = torch.arange(n * n_pos).view(n, n_pos)
    return Batch(inputs=tokens, targets=tokens, scored=torch.ones_like(tokens, dtype=torch.bool))


def saying(rows, **fields) -> Mechanism:
    return Mechanism(name="mine", pattern=lambda b: torch.tensor(rows).expand(len(b), -1, -1), **fields)


GOOD = [[1.0, 0, 0], [0.5, 0.5, 0], [0, 0, 1]]


def test_a_pattern_that_could_be_attention_is_given_back():
    torch.testing.assert_close(checked_pattern(saying(GOOD), batch())[1], torch.tensor(GOOD))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1.0, 0], [0, 1]], r"shape \(batch, query, key\) = \(2, 3, 3\); got \(2, 2, 2\)"),
        ([[1.0, 0, 0], [float("nan"), 0.5, 0], [0, 0, 1]], "NaN in a whole row"),
        ([[1.0, 0, 0], [1.5, -0.5, 0], [0, 0, 1]], "must not be negative; got -0.5"),
        ([[1.0, 0, 0], [0, 0, 1], [0, 0, 1]], "causal"),
        ([[1.0, 0, 0], [0.5, 0.4, 0], [0, 0, 1]], "add up to 1; got one that misses it by 0.1"),
    ],
)
def test_what_could_not_be_attention_is_refused(rows, words):
    with pytest.raises(InputError, match=words):
        checked_pattern(saying(rows), batch())


def test_nan_after_the_query_of_a_silent_row_is_no_weight():
    rows = [[1.0, 0, 0], [float("nan")] * 3, [0, 0, 1]]
    assert unspecified_queries(checked_pattern(saying(rows), batch())).tolist() == [[False, True, False]] * 2


@pytest.mark.parametrize(("fields", "words"), [({"name": ""}, "name"), ({"n_parameters": -1}, "n_parameters")])
def test_fields_are_checked(fields, words):
    with pytest.raises(InputError, match=words):
        Mechanism(**{"name": "mine", "pattern": identity().pattern, **fields})


def test_otherwise_fills_the_silent_rows_only():
    both = with_fallback(previous(), uniform())
    expected = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    torch.testing.assert_close(checked_pattern(both, batch())[0], expected)
    assert both.name == "previous token, else uniform"
    assert both.parts == (previous(), uniform())


def test_otherwise_adds_up_parameters_and_flattens_parts():
    one, other = saying(GOOD, n_parameters=2), with_fallback(previous(2), identity())
    assert with_fallback(one, other).n_parameters == 2
    assert with_fallback(with_fallback(previous(2), previous()), identity()).parts == (
        previous(2),
        previous(),
        identity(),
    )


def test_built_twice_is_equal_and_printable():
    assert with_fallback(previous(3), identity()) == with_fallback(previous(3), identity())
    assert previous(3) != previous(2)
    assert "function" not in repr(previous(3))


def test_names_must_differ():
    with pytest.raises(InputError, match="'identity' twice"):
        check_names([identity(), uniform(), identity()])
    with pytest.raises(InputError, match="at least one"):
        check_names([])
