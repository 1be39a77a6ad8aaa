from itertools import pairwise

import pytest

from mnemoscope import InputError
from mnemoscope.systems.memory_theory.associations import candidates, largest_stored


def test_candidates_are_whole_numbers_a_sixteenth_of_an_octave_apart():
    grid = candidates(256)
    assert grid[:9] == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert grid[-17:] == sorted({round(128 * 2 ** (i / 16)) for i in range(17)})
    assert all(b <= a * 2 ** (1 / 16) + 1 for a, b in pairwise(grid))


@pytest.mark.parametrize("ways", [1, 2, 3, 50])
@pytest.mark.parametrize("guess", [2, 30, 400])
def test_every_threshold_is_found_from_every_guess(ways, guess):
    thresholds = [2, 3, 10, 11, 57, 128, 300]
    found = largest_stored(
        lambda pairs: [n <= thresholds[problem] for problem, n in pairs],
        [guess] * len(thresholds),
        most=512,
        ways=ways,
    )
    assert found == [max(n for n in candidates(512) if n <= threshold) for threshold in thresholds]


def test_where_not_even_two_are_stored_there_is_nothing():
    assert largest_stored(lambda pairs: [False for _ in pairs], [20], most=64) == [0]


def test_a_search_that_ends_at_its_largest_candidate_says_so():
    with pytest.raises(InputError, match="64 associations are"):
        largest_stored(lambda pairs: [True for _ in pairs], [20], most=64)


def test_no_candidate_is_asked_twice_and_a_good_guess_takes_few_rounds():
    asked = []

    def ask(pairs):
        asked.extend(pairs)
        return [n <= 100 for _, n in pairs]

    largest_stored(ask, [100], most=4096)
    assert len(set(asked)) == len(asked) <= 4


def test_outcomes_that_contradict_each_other_end_the_search():
    """Nothing below 40 is stored and everything above it: an answer is one that is stored, or nothing."""
    (found,) = largest_stored(lambda pairs: [40 < n < 60 for _, n in pairs], [20], most=64, ways=3)
    assert found == 0 or 40 < found < 60


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="most must be"):
        candidates(1)
    with pytest.raises(InputError, match="ways must be"):
        largest_stored(lambda pairs: [], [20], most=64, ways=0)
