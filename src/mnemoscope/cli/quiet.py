"""Warnings of libraries are not shown: a user of a command cannot act on them. `python -W` brings them back.

Warnings of this package are logged, and are shown.
"""

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_FOR_WORKERS = {"PYTHONWARNINGS": "ignore", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_VERBOSITY": "error"}
"""Entries of the environment, which worker processes inherit."""


@contextmanager
def libraries_silent() -> Iterator[None]:
    """Warnings and log records of libraries are not shown, here and in worker processes; nothing stays changed.

    Users who ask for warnings (`python -W`, PYTHONWARNINGS) get them, and so do those who have set up logging.
    """
    if sys.warnoptions:
        yield
        return
    before = {name: os.environ.get(name) for name in _FOR_WORKERS}
    handlers = [] if logging.root.handlers else [(logging.root, logging.NullHandler()), (_own(), _plain())]
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


def _own() -> logging.Logger:
    return logging.getLogger(__name__.partition(".")[0])


def _plain() -> logging.Handler:
    """Shows warnings as they are."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    return handler
