"""A Dask cluster in place of worker processes: `local`, one that runs already, or one that a YAML file makes.

Within `on_scheduler` whatever takes `jobs` runs on the workers of the cluster, with the same functions. Every worker
has one thread, as a worker process has.
"""

import importlib
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from mnemoscope.core.errors import InputError, in_range, nearest
from mnemoscope.run.server import n_processes

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
KEYS = ("class", "arguments", "workers", "adapt")
"""The keys of a file that makes a cluster."""

_client: ContextVar[Any] = ContextVar("client", default=None)


def client() -> Any:
    """The `distributed.Client` that work goes to; None: it stays on this machine."""
    return _client.get()


@contextmanager
def on_scheduler(where: str, *, jobs: int = 0, announce: Callable[[str], None] | None = None) -> Iterator[None]:
    """Have the workers of a Dask cluster do what worker processes would do otherwise.

    `where` is `local` for workers on this machine, `jobs` of them (0: one per core), or the address of a scheduler. It
    may also be a YAML file that makes a cluster: its class, arguments, and how many workers (`workers`, or `adapt` with
    `minimum` and `maximum`). `announce` is called once with a line that says where the scheduler and its dashboard are.
    Raises InputError where dask.distributed is not installed, no scheduler answers there, a file makes no cluster, or a
    worker has several threads.
    """
    distributed = required()
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        if where == LOCAL:
            scheduler: Any = stack.enter_context(_local(distributed, n_processes(jobs)))
        elif where.endswith((".yaml", ".yml")):
            scheduler = stack.enter_context(_made_by(Path(where)))
        else:
            scheduler = _answering(where)
        connected = stack.enter_context(_connected(distributed, scheduler, where))
        threads = connected.nthreads()
        check_threads(max(threads.values(), default=1))
        if announce:
            address, dashboard = connected.scheduler.address, connected.dashboard_link
            announce(f"scheduler {address}, workers: {len(threads)} now; dashboard {dashboard}")
        token = _client.set(connected)
        try:
            yield
        finally:
            _client.reset(token)


def required() -> ModuleType:
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
def _quiet() -> Iterator[None]:
    """Silence Dask: whoever notices that work did not come back tells in one line what went wrong."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _local(distributed: ModuleType, n_workers: int) -> Any:
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
def _connected(distributed: ModuleType, scheduler: Any, where: str) -> Iterator[Any]:
    try:
        found = distributed.Client(scheduler, timeout=ANSWERS_WITHIN, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(f"--scheduler {where} is no Dask scheduler that answers: {_in_a_line(error)}") from None
    with found:
        yield found


def _answering(address: str) -> str:
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
            f"that makes a cluster; got {address!r}{nearest(address, [LOCAL])}"
        )
    try:
        connection = socket.create_connection((host, port), timeout=REACHED_WITHIN)
    except OSError as error:
        raise InputError(f"--scheduler {address}: nobody answers there: {_in_a_line(error)}") from None
    with connection:
        connection.settimeout(ANSWERS_WITHIN)
        if parts.scheme == "tcp" and not _speaks(connection):
            raise InputError(f"--scheduler {address} is no Dask scheduler that answers: it says nothing")
    return parts.geturl()


def _speaks(connection: socket.socket) -> bool:
    """True if anything comes from the other side."""
    try:
        return bool(connection.recv(1))
    except OSError:
        return False


@contextmanager
def _made_by(file: Path) -> Iterator[Any]:
    """The cluster that a file describes; it ends with the context."""
    content = read_cluster(file)
    cls, arguments = _class_of(content["class"], file), content.get("arguments") or {}
    try:
        cluster = cls(**arguments)
    except Exception as error:  # of somebody else's class: whatever it says of its arguments
        raise InputError(f"{file}: {content['class']} cannot be made of these arguments: {_in_a_line(error)}") from None
    with cluster:
        if "adapt" in content:
            cluster.adapt(**content["adapt"])
        elif "workers" in content:
            cluster.scale(content["workers"])
        yield cluster


def read_cluster(file: Path) -> Mapping[str, Any]:
    """The description of a cluster in a file."""
    import yaml

    try:
        content = yaml.safe_load(file.read_text())
    except OSError as error:
        raise InputError(f"--scheduler {file} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"--scheduler {file} is no YAML: {_in_a_line(error)}") from None
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


def _class_of(name: str, file: Path) -> Callable[..., Any]:
    module, _, cls = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module or name), cls)
    except (ImportError, AttributeError, ValueError):
        package = name.partition(".")[0].replace("_", "-")
        raise InputError(f"class in {file}: there is no {name}; is {package} installed?") from None


def _in_a_line(error: BaseException) -> str:
    """The first error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split()) or type(error).__name__
