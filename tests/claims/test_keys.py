"""Whatever becomes part of a key tells one result from another, or is refused: two of one key would be merged."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial, wraps
from typing import Any

import numpy as np
import pytest

from mnemoscope.claims.claim import Claim, Control
from mnemoscope.claims.functions import check_key, check_named, function_digest, key_text, modules_of, name_of
from mnemoscope.claims.measures import DrawWork, MeasureCall
from mnemoscope.claims.trials import run_trials
from mnemoscope.core.errors import InputError


class Box:
    def __init__(self, sign: float):
        self.sign = sign

    def m(self, draw: int) -> dict[str, float]:
        return {"effect": self.sign}

    __call__ = m

    @classmethod
    def of_class(cls, draw: int) -> dict[str, float]:
        return {"effect": 0.0}


@dataclass(frozen=True)
class Scaled:
    """A measure with its numbers in fields, of which the repr shows none."""

    by: float = field(repr=False)
    of: Any = field(default=None, repr=False)

    def __call__(self, draw: int) -> dict[str, float]:
        return {"effect": self.by}


@dataclass
class Thawed:
    by: float

    def __call__(self, draw: int) -> dict[str, float]:
        return {"effect": self.by}


def plain(draw: int, factor: Any = None) -> dict[str, float]:
    return {"effect": float(draw)}


def planted(values: Any, case: int) -> dict[str, Any]:
    return {"draw": {"effect": 0.0}}


def compared(measured: Any, scale: Any = None) -> Any:
    return measured["draw"]


def closure(by: float) -> Callable[[int], dict[str, float]]:
    @wraps(plain)  # takes over the name of a function of the module
    def measure(draw: int) -> dict[str, float]:
        return {"effect": by}

    return measure


def local_class(by: float) -> Any:
    @dataclass(frozen=True)
    class Local:
        by: float = 0.0

        def __call__(self, draw: int) -> dict[str, float]:
            return {"effect": by}

    return Local()


def fixed(measure: Any, **changes: Any) -> Claim:
    how: dict[str, Any] = {"quantifier": "most", "margin": 0.0, "replicate": "draw", "measure": measure}
    return Claim(id="X", statement="An effect is positive.", source="ours", **{**how, **changes})


@pytest.mark.parametrize(
    "function",
    [
        Box(1.0).m,
        Box(1.0),
        Box.of_class,
        Thawed(1.0),
        lambda draw: {"effect": 1.0},
        closure(1.0),
        local_class(1.0),
        [].append,
        Scaled(1.0, of=Box(1.0)),
        Scaled(1.0, of=Thawed(1.0)),
        Scaled(1.0, of=[lambda: 0]),
        partial(plain, factor=Box(1.0)),
        partial(plain, factor={"one": closure(1.0)}),
        partial(plain, factor=object()),
        partial(Box(1.0).m),
    ],
)
def test_what_a_key_does_not_tell_is_refused_wherever_it_becomes_part_of_one(function):
    control = Control(name="c", kind="negative", plant=partial(planted, function))
    for claim in (
        fixed(function),
        fixed(plain, compare=function),
        fixed(plain, compare=partial(compared, scale=function)),
        fixed(plain, controls=(control,)),
        fixed(plain, factors={"factor": (function,)}),
        fixed(plain, rivals=(Claim(**{**vars(fixed(function)), "id": "X-other"}),)),
    ):
        with pytest.raises(InputError, match="claim X") as refused:
            run_trials([claim], [])
        assert "\n" not in str(refused.value)


def test_two_bound_methods_are_not_merged():
    """Kept by one name, the second would be given the effect of the first."""
    for sign in (1.0, -1.0):
        with pytest.raises(InputError, match="the bound method"):
            run_trials([fixed(Box(sign).m)], [])


def test_a_frozen_value_measures_and_its_fields_are_in_the_key():
    for by in (1.0, -1.0):
        (ruling,) = run_trials([fixed(Scaled(by))], [])
        assert ruling.verdict.effect == by
    one, other = Scaled(1.0), Scaled(-1.0)
    assert name_of(one) != name_of(other)
    assert function_digest(one) != function_digest(other)
    assert MeasureCall(one).key != MeasureCall(other).key
    assert DrawWork(one, 0).name != DrawWork(other, 0).name
    assert modules_of(Scaled(1.0, of=np.mean)) == {__name__, np.mean.__module__}


def test_functions_of_modules_and_plain_values_stay_allowed():
    cached = lru_cache(plain)
    for value in (plain, np.mean, max, Scaled(2.0, of=(plain, Scaled(1.0))), partial(plain, factor=np.arange(3))):
        check_named("measure", value)
    for value in (1, "a", None, (1, [2.0]), {"a": {1, 2}}, np.zeros(2), Scaled):
        check_key("value", value)
    with pytest.raises(InputError, match="top level"):
        check_named("measure", cached)


def test_large_arrays_and_sets_have_texts_of_their_own():
    """The repr of an array of more than a thousand numbers leaves out those in the middle."""
    one, other = np.zeros(5000), np.zeros(5000)
    other[2500] = 1
    assert repr(one) == repr(other)
    assert key_text(one) != key_text(other)
    assert function_digest(partial(plain, factor=one)) != function_digest(partial(plain, factor=other))
    assert function_digest(Scaled(1.0, of=one)) != function_digest(Scaled(1.0, of=other))
    assert key_text({3, 1, 2}) == key_text({1, 2, 3})
    assert key_text(np.float64(1)) != key_text("1.0")
