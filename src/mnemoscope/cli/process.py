"""The process of a command: interrupts are noted, warnings of libraries are not shown, and every console can print.

A user of a command cannot act on such warnings; `python -W` brings them back. Warnings of this package are logged, and
are shown.
"""

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from types import FrameType

_FOR_WORKERS = {"PYTHONWARNINGS": "ignore", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_VERBOSITY": "error"}
"""Entries of the environment, which worker processes inherit."""


@contextmanager
def note_interrupts() -> Iterator[list[int]]:
    """A list that is no longer empty once this process was interrupted; `KeyboardInterrupt` is raised all the same.

    A library that is imported just then may raise something else. Handlers of others are left alone, and so are
    interrupts outside the main thread.
    """
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        signal.default_int_handler(number, frame)

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield noted
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def print_everywhere() -> Iterator[None]:
    """Print `?` for characters that the encoding of a console lacks; they would end the command with an error."""
    streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, TextIOWrapper)]
    before = [stream.errors for stream in streams]
    try:
        for stream in streams:
            if stream.errors == "strict":
                stream.reconfigure(errors="replace")
        yield
    finally:
        for stream, errors in zip(streams, before, strict=True):
            if not stream.closed:
                stream.reconfigure(errors=errors)


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Warnings and log records of libraries are not shown, here and in worker processes; nothing stays changed.

    Users who ask for warnings (`python -W`, PYTHONWARNINGS) get them, and so do those who have set up logging.
    """
    if sys.warnoptions:
        yield
        return
    before = {name: os.environ.get(name) for name in _FOR_WORKERS}
    handlers = (
        [] if logging.root.handlers else [(logging.root, logging.NullHandler()), (_own_logger(), _plain_handler())]
    )
    os.environ.update({name: value for name, value in _FOR_WORKERS.items() if before[name] is None})
    for logger, handler in handlers:
        logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda *_, **__: None  # some libraries put filters of their own in front
            yield
    finally:
        for logger, handler in handlers:
            logger.removeHandler(handler)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)


def _own_logger() -> logging.Logger:
    return logging.getLogger(__name__.partition(".")[0])


def _plain_handler() -> logging.Handler:
    """Shows warnings as they are."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    return handler
