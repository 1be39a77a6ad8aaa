"""The workers of a Dask cluster in place of worker processes: `local`, a cluster that runs, or one that a file makes.

Within `on_scheduler` whatever takes `jobs` goes through `Workers`, with the same functions. A piece of work travels as
bytes, in the words of the process that asks: guests are invited first, and relative paths mean what they mean here.
The scheduler gives a piece to another worker where one dies; a lost scheduler is asked again if it comes back.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from mnemoscope.core import guests
from mnemoscope.core.errors import InputError, in_range, suggest_nearest
from mnemoscope.core.version import __version__
from mnemoscope.models.files import read_yaml
from mnemoscope.run.executor import ATTEMPTS, POLLED_EVERY, WorkersDiedError, client, n_processes, prepare_worker

LOCAL = "local"
REACHED_WITHIN = 5.0
"""Seconds in which somebody listens at an address."""
ANSWERS_WITHIN = 20.0
"""Seconds in which a scheduler answers, or has come back after it was lost."""
PROTOCOLS = ("tcp", "tls", "ws", "wss", "ucx")
TRIMMED = "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_"
"""Dask's setting that makes workers give memory back early. With it the C library asks the system anew for the memory
of every tensor above 128 KB, at every step.
"""
AHEAD = 512
"""Pieces that the scheduler knows of at a time: it holds some kilobytes for each."""
LOST = "the Dask scheduler was lost; what is finished is kept, the same command continues"
KEYS = ("class", "arguments", "workers", "adapt")
"""The keys of a file that makes a cluster."""


@contextmanager
def on_scheduler(where: str, *, jobs: int = 0, announce: Callable[[str], None] | None = None) -> Iterator[None]:
    """Have the workers of a Dask cluster do what worker processes would do otherwise.

    `where` is `local` for workers on this machine, `jobs` of them (0: one per core), or the address of a scheduler. It
    may also be a YAML file that makes a cluster: its class, arguments, and how many workers (`workers`, or `adapt` with
    `minimum` and `maximum`). `announce` is called once with a line that says where the scheduler and its dashboard are.
    Raises InputError where dask.distributed is not installed, no scheduler answers there, a file makes no cluster, or a
    worker has several threads.
    """
    distributed = require_distributed()
    with ExitStack() as stack:
        stack.enter_context(_silence_dask())
        if where == LOCAL:
            scheduler: Any = stack.enter_context(_local_cluster(distributed, n_processes(jobs)))
        elif where.endswith((".yaml", ".yml")):
            scheduler = stack.enter_context(_cluster_from_file(Path(where)))
        else:
            scheduler = _check_address(where)
        connected = stack.enter_context(_open_cluster(distributed, scheduler, where))
        threads = connected.nthreads()
        check_threads(max(threads.values(), default=1))
        if announce:
            address, dashboard = connected.scheduler.address, connected.dashboard_link
            announce(f"scheduler {address}, workers: {len(threads)} now; dashboard {dashboard}")
        token = client.set(connected)
        try:
            yield
        finally:
            client.reset(token)


def require_distributed() -> ModuleType:
    """The module dask.distributed; raises InputError where it is not installed."""
    try:
        return importlib.import_module("distributed")
    except ImportError:
        raise InputError("--scheduler needs dask.distributed: pip install 'mnemoscope[dask]'") from None


def check_threads(n: int) -> None:
    """Refuse a worker with several threads: models of one process would share random numbers and threads."""
    if n != 1:
        raise InputError(
            f"every worker of the Dask cluster must have one thread; got {n}; start more workers in place of threads: "
            "dask worker ADDRESS --nworkers N --nthreads 1"
        )


@contextmanager
def _silence_dask() -> Iterator[None]:
    """Silence Dask: whoever notices that work did not come back tells in one line what went wrong."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _local_cluster(distributed: ModuleType, n_workers: int) -> Any:
    """Workers on this machine, which end with this process; nothing outside it reaches them."""
    configuration = importlib.import_module("dask.config")
    with configuration.set({TRIMMED: None}):
        return distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            memory_limit=0,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )


@contextmanager
def _open_cluster(distributed: ModuleType, scheduler: Any, where: str) -> Iterator[Any]:
    try:
        found = distributed.Client(scheduler, timeout=ANSWERS_WITHIN, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(f"--scheduler {where} is no Dask scheduler that answers: {_first_line(error)}") from None
    with found:
        yield found


def _check_address(address: str) -> str:
    """The address, if a scheduler listens there; otherwise InputError.

    Dask itself would wait for long, and for ever for one who never answers. A scheduler speaks first, unless the
    connection is encrypted or goes through HTTP.
    """
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if parts.scheme not in PROTOCOLS or not host or not port:
        raise InputError(
            f"--scheduler must be {LOCAL}, the address of a Dask scheduler such as tcp://host:8786, or a YAML file "
            f"that makes a cluster; got {address!r}{suggest_nearest(address, [LOCAL])}"
        )
    try:
        connection = socket.create_connection((host, port), timeout=REACHED_WITHIN)
    except OSError as error:
        raise InputError(f"--scheduler {address}: nobody answers there: {_first_line(error)}") from None
    with connection:
        connection.settimeout(ANSWERS_WITHIN)
        said = b""
        with suppress(OSError):
            said = connection.recv(1) if parts.scheme == "tcp" else b"unknown"
        if not said:
            raise InputError(f"--scheduler {address} is no Dask scheduler that answers: it says nothing")
    return parts.geturl()


@contextmanager
def _cluster_from_file(file: Path) -> Iterator[Any]:
    """The cluster that a file describes; it ends with the context."""
    content = read_cluster(file)
    cls, arguments = _cluster_class(content["class"], file), content.get("arguments") or {}
    try:
        cluster = cls(**arguments)
    except Exception as error:  # of somebody else's class: whatever it says of its arguments
        raise InputError(
            f"{file}: {content['class']} cannot be made of these arguments: {_first_line(error)}"
        ) from None
    with cluster:
        if "adapt" in content:
            cluster.adapt(**content["adapt"])
        elif "workers" in content:
            cluster.scale(content["workers"])
        yield cluster


def read_cluster(file: Path) -> Mapping[str, Any]:
    """The description of a cluster in a file."""
    content = read_yaml(file, f"--scheduler {file}")
    if not isinstance(content, dict) or not isinstance(content.get("class"), str):
        raise InputError(f"--scheduler {file} must hold the key class, such as dask_jobqueue.SLURMCluster")
    if unknown := [key for key in content if key not in KEYS]:
        raise InputError(f"a key of {file} must be one of: {', '.join(KEYS)}; got {unknown[0]!r}")
    for key in ("arguments", "adapt"):
        if not isinstance(content.get(key) or {}, dict):
            raise InputError(f"{key} in {file} must hold arguments as keys; got {content[key]!r}")
    if "workers" in content:
        if not isinstance(content["workers"], int):
            raise InputError(f"workers in {file} must be a whole number; got {content['workers']!r}")
        in_range(f"workers in {file}", content["workers"], 1, float("inf"))
    return content


def _cluster_class(name: str, file: Path) -> Callable[..., Any]:
    module, _, cls = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module or name), cls)
    except (ImportError, AttributeError, ValueError):
        package = name.partition(".")[0].replace("_", "-")
        raise InputError(f"class in {file}: there is no {name}; is {package} installed?") from None


def _first_line(error: BaseException) -> str:
    """The first error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split()) or type(error).__name__


# ---- work


class RepeatedDeathError(WorkersDiedError):
    """Several workers died of a piece, one after the other: the scheduler has given it to others itself."""

    attempts = ATTEMPTS


@dataclass(frozen=True, kw_only=True)
class WorkOrder:
    """The common part of all pieces."""

    function: bytes
    """Pickled, by name, or as a whole if it belongs to the script that was started: from a piece to its result."""
    topic: str
    """Under which workers tell something while they work; empty: they do not."""
    invited: tuple[str, ...]
    directory: str
    """The one that relative paths start from."""
    command: tuple[str, ...]
    """As runs keep it."""
    code: str
    """All that has to be the same for the same results."""


class Workers:
    """The workers of a cluster, with the methods of `Processes`."""

    def __init__(self, scheduler: Any, function: Callable[..., Any], *, tells: bool = False):
        """See `Processes`."""
        self.n_ahead = AHEAD
        self._client = scheduler
        self._executor = scheduler.get_executor(pure=False)
        self._order = make_order(function, f"mnemoscope-{uuid4().hex}" if tells else "")
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._subscribe()

    def _subscribe(self) -> None:
        if self._order.topic:
            self._client.subscribe_topic(self._order.topic, lambda event: self._events.put(event[1]))

    def submit(self, piece: Any) -> Future[Any]:
        """Hand a piece to the scheduler."""
        return self._executor.submit(run_piece, _pickle_by_name(piece), order=self._order)

    def result(self, future: Future[Any]) -> Any:
        """As in `Processes`; InputError where the scheduler was lost and does not come back."""
        try:
            return pickle.loads(future.result())
        except CancelledError:
            self._wait_for_scheduler()
            raise WorkersDiedError(LOST) from None
        except require_distributed().KilledWorker as error:
            n, last = error.allowed_failures + 1, error.last_worker.address
            raise RepeatedDeathError(f"{n} workers died of it, the last at {last}") from None

    def _wait_for_scheduler(self) -> None:
        until = monotonic() + 2 * ANSWERS_WITHIN
        while self._client.status != "running":
            if self._client.status in ("closing", "closed") or monotonic() > until:
                raise InputError(LOST)
            sleep(POLLED_EVERY)
        self._subscribe()

    def messages(self) -> Iterator[Any]:
        """As in `Processes`."""
        with suppress(Empty):
            while True:
                yield pickle.loads(self._events.get_nowait())

    def stop(self) -> None:
        """Cancel what is not finished: workers notice when they tell something next."""
        if self._client.status == "running":
            self._executor.shutdown(wait=False)
            if self._order.topic:
                self._client.unsubscribe_topic(self._order.topic)


def make_order(function: Callable[..., Any], topic: str) -> WorkOrder:
    """The order to apply a function, in the circumstances of this process."""
    invited = guests.invited_sources()
    return WorkOrder(
        function=_pickle_by_name(function),
        topic=topic,
        invited=invited,
        directory=str(Path.cwd()),
        command=tuple(sys.argv),
        code=code_version(invited),
    )


@cache
def code_version(invited: tuple[str, ...]) -> str:
    """All that decides about results: versions, and a digest of the source of the library and of guests.

    The source is that of this process's first look; `invited` are sources of guests, which are here.
    """
    library = sorted(Path(__file__).parents[1].rglob("*.py"))
    others = [guest for guest in guests.guests() if not guest.startswith("mnemoscope.")] if invited else []
    digest = hashlib.sha256()
    for file in (*library, *(file for guest in others for file in guests.source_files(guest))):
        digest.update(file.read_bytes())
    return f"mnemoscope {__version__} ({digest.hexdigest()[:12]}), torch {version('torch')}"


def _pickle_by_name(thing: Any) -> bytes:
    """The name of what a worker can import; all of what belongs to the script that was started."""
    import cloudpickle

    return cloudpickle.dumps(thing)


def run_piece(piece: bytes, *, order: WorkOrder) -> bytes:
    """The work of a worker; refused where it has several threads, other versions or no such directory."""
    worker = require_distributed().get_worker()
    check_threads(worker.state.nthreads)
    prepare_worker(order.invited)
    if (here := code_version(order.invited)) != order.code:
        raise InputError(
            f"the worker on {socket.gethostname()} has {here}, and this process {order.code}; install the same on "
            "both, and start the workers again"
        )
    with _process_context(order.directory, order.command):
        function = pickle.loads(order.function)
        try:
            tell = (_topic_publisher(order.topic),) if order.topic else ()
            return _pickle_by_name(function(pickle.loads(piece), *tell))
        except FileNotFoundError as error:
            raise InputError(
                f"the worker on {socket.gethostname()} does not find {error.filename}; what is analysed on a Dask "
                "cluster must lie on a file system that its workers share"
            ) from None


@contextmanager
def _process_context(directory: str, command: tuple[str, ...]) -> Iterator[None]:
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


def _topic_publisher(topic: str) -> Callable[[Any], None]:
    """A function that tells whoever waits for the piece at work; it raises once nobody waits any more."""
    distributed = require_distributed()
    worker, key = distributed.get_worker(), distributed.worker.thread_state.key

    def tell(message: Any) -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled" or worker.status.name not in ("running", "paused"):
            raise InputError("nobody waits for this piece of work any more")
        worker.log_event(topic, pickle.dumps(message))

    return tell
