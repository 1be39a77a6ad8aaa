"""Results that are kept as long as what they are of: a model's, a subject's, a batch's.

`functools.lru_cache` keeps its arguments too, and with them a model that nothing else needs any more.
"""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

Of = TypeVar("Of")
Rest = ParamSpec("Rest")
Result = TypeVar("Result")


def kept(function: Callable[Concatenate[Of, Rest], Result]) -> Callable[Concatenate[Of, Rest], Result]:
    """Call a function once for each first argument, given by position, and the others, which must be hashable.

    The result must not refer to the first argument, or neither is ever freed.
    """
    results: WeakKeyDictionary[Of, dict[Hashable, Result]] = WeakKeyDictionary()

    @wraps(function)
    def remembered(of: Of, *args: Rest.args, **kwargs: Rest.kwargs) -> Result:
        known, key = results.setdefault(of, {}), (args, tuple(sorted(kwargs.items())))
        if key not in known:
            known[key] = function(of, *args, **kwargs)
        return known[key]

    return remembered
