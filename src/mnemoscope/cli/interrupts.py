"""Interrupts from the keyboard, noted when they come: a library that is imported just then may raise something else."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_noted() -> Iterator[list[int]]:
    """A list that is no longer empty once this process was interrupted; `KeyboardInterrupt` is raised all the same.

    Handlers of others are left alone, and so are interrupts outside the main thread.
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
