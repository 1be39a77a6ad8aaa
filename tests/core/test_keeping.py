"""Results that are kept as long as what they are of."""

import gc
import weakref

import pytest

from mnemoscope.core.runtime import memoize


class Thing:
    pass


def counting():
    calls = []

    @memoize
    def function(of, number=0, *, name="a"):
        """What it does."""
        calls.append((number, name))
        return [number, name]

    return function, calls


def test_a_function_is_called_once_for_each_thing_and_argument():
    function, calls = counting()
    one, other = Thing(), Thing()
    assert function(one) is function(one)
    assert function(one, 1, name="b") == [1, "b"]
    assert function(one, 1, name="b") == function(other, 1, name="b")
    assert calls == [(0, "a"), (1, "b"), (1, "b")]
    assert function.__doc__ == "What it does."


def test_a_call_that_fails_is_not_kept():
    answers = iter([ValueError("no"), 3])

    @memoize
    def function(of):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    thing = Thing()
    with pytest.raises(ValueError, match="no"):
        function(thing)
    assert function(thing) == 3


def test_the_thing_and_its_results_are_freed():
    made = []

    @memoize
    def function(of):
        result = Thing()
        made.append(weakref.ref(result))
        return result

    thing = Thing()
    function(thing)
    assert made[0]() is not None
    made.append(weakref.ref(thing))
    del thing
    gc.collect()
    assert [one() for one in made] == [None, None]
