"""Pieces of work on the workers of a Dask cluster, the same functions as in worker processes.

A piece travels as bytes, in the words of the process that asks: guests are invited first, and relative paths mean what
they mean here. Another worker does the work of one that died. A lost scheduler is asked again if it comes back.
"""

import contextlib
import hashlib
import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from importlib.resources import files
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import Any, TypeVar
from uuid import uuid4

from mnemoscope.core import guests
from mnemoscope.core.errors import InputError
from mnemoscope.core.version import __version__
from mnemoscope.run.dask_cluster import ANSWERS_WITHIN, check_threads, required
from mnemoscope.run.server import ATTEMPTS, prepare

S = TypeVar("S")
T = TypeVar("T")

AHEAD = 4096
"""Pieces that the scheduler knows of at a time: it holds some kilobytes for each."""
POLLED_EVERY = 0.02
"""Seconds between two looks whether something came back."""


class DiedError(RuntimeError):
    """The workers that did a piece died, one after the other."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """The common part of all pieces."""

    function: bytes
    """Pickled: from an item to its result."""
    invited: tuple[str, ...]
    directory: str
    """The one that relative paths start from."""
    command: tuple[str, ...]
    """As runs keep it."""
    code: str
    """All that has to be the same for the same results."""


def mapped(client: Any, function: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
    """Results in the order of the items, as `map` gives them.

    Raises InputError as the function does, or where the scheduler was lost or a worker is not like this process;
    DiedError where workers die of a piece.
    """
    early: dict[int, T] = {}
    following = 0
    for place, result in as_they_come(client, function, items):
        if isinstance(result, DiedError):
            raise result
        early[place] = result
        while following in early:
            yield early.pop(following)
            following += 1


def as_they_come(
    client: Any, function: Callable[..., T], items: Sequence[Any], heard: Callable[[Any], None] | None = None
) -> Iterator[tuple[int, T | DiedError]]:
    """Results with the places of their items; `DiedError` stands for that of a piece that workers die of.

    The function is sent by name, or as a whole if it belongs to the script that was started. With `heard` it takes a
    function `tell` too; this thread calls `heard` with what the function tells while it works.
    """
    topic = f"mnemoscope-{uuid4().hex}"
    events: SimpleQueue[Any] = SimpleQueue()
    if heard is not None:
        function = partial(_telling, function, topic)
        client.subscribe_topic(topic, lambda event: events.put(event[1]))
    left = dict(enumerate(items))
    try:
        for _ in range(ATTEMPTS):
            for place, result in _until_lost(client, function, left, events, heard):
                del left[place]
                yield place, result
            if not left:
                return
            _wait_for_scheduler(client)
            if heard is not None:
                client.subscribe_topic(topic, lambda event: events.put(event[1]))
    finally:
        if heard is not None and client.status == "running":
            client.unsubscribe_topic(topic)
    raise _lost()


def _until_lost(
    client: Any, function: Callable[..., T], items: dict[int, Any], events: "SimpleQueue[Any]", heard: Any
) -> Iterator[tuple[int, T | DiedError]]:
    """Results until all are there, or until the scheduler is lost."""
    distributed = required()
    order, waiting = _order(function), iter(list(items.items()))
    places: dict[Any, int] = {}
    coming = distributed.as_completed(with_results=True, raise_errors=False, loop=client.loop)
    try:
        _ask(client, order, islice(waiting, AHEAD), places, coming)
        while places:
            batch = coming.next_batch(block=False) if coming.has_ready() else []
            for future, result in batch:
                place = places.pop(future)
                if future.status in ("cancelled", "lost"):
                    return
                yield place, _opened(future, result)
            _ask(client, order, islice(waiting, len(batch)), places, coming)
            _hand_on(events, heard)
            if not batch:
                sleep(POLLED_EVERY)
        _hand_on(events, heard)
    finally:
        coming.clear()
        if places and client.status == "running":
            client.cancel(list(places), force=True)


def _ask(client: Any, order: Order, items: Iterator[tuple[int, Any]], places: dict[Any, int], coming: Any) -> None:
    """Hand pieces to the scheduler."""
    asked = list(items)
    if not asked:
        return
    pickled = [_pickled(item) for _, item in asked]
    futures = client.map(there, pickled, order=order, pure=False, batch_size=AHEAD)
    places |= {future: place for future, (place, _) in zip(futures, asked, strict=True)}
    coming.update(futures)


def _opened(future: Any, result: Any) -> Any:
    """The result that came back, or the error that was raised there."""
    if future.status == "finished":
        return pickle.loads(result)
    _, error, _ = result
    if isinstance(error, required().KilledWorker):
        return DiedError(f"{error.allowed_failures + 1} workers died of it, the last at {error.last_worker.address}")
    raise error


def _hand_on(events: "SimpleQueue[Any]", heard: Callable[[Any], None] | None) -> None:
    with contextlib.suppress(Empty):
        while heard is not None:
            heard(pickle.loads(events.get_nowait()))


def _wait_for_scheduler(client: Any) -> None:
    """Wait until the client has found a scheduler at the old address again; raises InputError where it does not."""
    until = monotonic() + 2 * ANSWERS_WITHIN
    while client.status not in ("closing", "closed") and monotonic() < until:
        if client.status == "running":
            return
        sleep(POLLED_EVERY)
    raise _lost()


def _lost() -> InputError:
    return InputError("the Dask scheduler was lost; what is finished is kept, the same command continues")


def _order(function: Callable[..., Any]) -> Order:
    invited = guests.invited()
    return Order(
        function=_pickled(function),
        invited=invited,
        directory=str(Path.cwd()),
        command=tuple(sys.argv),
        code=code(invited),
    )


@cache
def code(invited: tuple[str, ...]) -> str:
    """All that decides about results: versions, and a digest of the source of the library and of guests.

    The source is that of this process's first look; `invited` are sources of guests, which are here.
    """
    library = sorted(Path(str(files("mnemoscope"))).rglob("*.py"))
    others = [guest for guest in guests.guests() if not guest.startswith("mnemoscope.")] if invited else []
    digest = hashlib.sha256()
    for file in (*library, *(file for guest in others for file in guests.sources(guest))):
        digest.update(file.read_bytes())
    return f"mnemoscope {__version__} ({digest.hexdigest()[:12]}), torch {version('torch')}"


def _pickled(thing: Any) -> bytes:
    """The name of what a worker can import; all of what belongs to the script that was started."""
    import cloudpickle

    return cloudpickle.dumps(thing)


def there(item: bytes, *, order: Order) -> bytes:
    """The work of a worker; refused where it has several threads, other versions or no such directory."""
    worker = required().get_worker()
    check_threads(worker.state.nthreads)
    prepare(order.invited)
    if (here := code(order.invited)) != order.code:
        raise InputError(
            f"the worker on {socket.gethostname()} has {here}, and this process {order.code}; install the same on "
            "both, and start the workers again"
        )
    with _as_if_in(order.directory, order.command):
        function = pickle.loads(order.function)
        try:
            return _pickled(function(pickle.loads(item)))
        except FileNotFoundError as error:
            raise InputError(
                f"the worker on {socket.gethostname()} does not find {error.filename}; what is analysed on a Dask "
                "cluster must lie on a file system that its workers share"
            ) from None


@contextlib.contextmanager
def _as_if_in(directory: str, command: tuple[str, ...]) -> Iterator[None]:
    """Make relative paths and the command line mean what they mean to the process that gave the order.

    A directory that this machine does not have is left out.
    """
    before, words = Path.cwd(), sys.argv
    if Path(directory).is_dir():
        os.chdir(directory)
    sys.argv = list(command)
    try:
        yield
    finally:
        os.chdir(before)
        sys.argv = words


def _telling(function: Callable[..., T], topic: str, item: Any) -> T:
    """The function of an item and of a function that tells whoever waits; it raises once nobody waits any more."""
    distributed = required()
    worker, key = distributed.get_worker(), distributed.worker.thread_state.key

    def tell(message: Any) -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled" or worker.status.name not in ("running", "paused"):
            raise InputError("nobody waits for this piece of work any more")
        worker.log_event(topic, pickle.dumps(message))

    return function(item, tell)
