"""Progress of long measurements, and results that are computed once; neither needs an array library.

Nobody sees progress unless a command shows it. Loops are nested, and only the outermost one reports: the finished share
has one meaning. `functools.lru_cache` would keep its arguments too, and with them a model that nothing else needs.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
Listener = Callable[[int, int], None]
"""Takes how many pieces are done, and of how many."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listen_to_progress(listener: Listener) -> Iterator[None]:
    """Have `told` loops of this thread tell a listener."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def progress(pieces: Iterable[T], *, after: int = 0, of: int | None = None) -> Iterator[T]:
    """The pieces of a loop, of about the same length each; a listener hears how many are done.

    `after` counts pieces of earlier loops that belong to the same work, and `of` those of all these loops; none: those
    of this one, which has a length.
    """
    listener = _listener.get()
    if listener is None:
        yield from pieces
        return
    if of is None:
        assert isinstance(pieces, Sized)
        of = after + len(pieces)
    done = after
    _listener.set(None)
    try:
        for piece in pieces:
            yield piece
            done += 1
            listener(done, of)
    finally:
        _listener.set(listener)


Of = TypeVar("Of")
Rest = ParamSpec("Rest")
Result = TypeVar("Result")


def memoize(function: Callable[Concatenate[Of, Rest], Result]) -> Callable[Concatenate[Of, Rest], Result]:
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
