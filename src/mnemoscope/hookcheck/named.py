"""The model that a word names: a run, a language model, or the result of a function of one's own."""

import sys
from pathlib import Path
from typing import cast

from mnemoscope.core.errors import InputError
from mnemoscope.core.guests import guests, invite
from mnemoscope.core.protocols import HookedModel, resolve_model
from mnemoscope.models.language.conversion import language_model
from mnemoscope.models.run import open_run
from mnemoscope.models.zoo import is_zoo_word


def open_model(word: str, *, dtype: str = "float32", device: str = "cpu") -> HookedModel:
    """The model that a word names.

    Args:
        word: A run directory, or a word such as `zoo:v3-quick/seed-16`; FILE.py:FUNCTION, MODULE:FUNCTION, or the name
            of a function of a guest that was imported, which gives a model when it is called; else the source of a
            language model.
        dtype: Precision of a language model.
        device: Device of a language model.

    Raises:
        InputError: Where the word names no model, or the function gives none.
    """
    path = Path(word)
    if is_zoo_word(word) or (path.is_dir() and not (path / "config.json").is_file()):
        return open_run(path).hooked()
    source, _, name = word.rpartition(":")
    if source and name.isidentifier():
        module = invite(source)
        if not hasattr(module, name):
            raise InputError(f"{source} has no function {name}; name one that gives a model")
        return _made(word, getattr(module, name))
    for module in [sys.modules[guest] for guest in reversed(guests()) if guest in sys.modules]:
        if word.isidentifier() and callable(function := vars(module).get(word)):
            return _made(word, function)
    return language_model(word, dtype=dtype, device=device)


def _made(word: str, function: object) -> HookedModel:
    """The model that a function of the user gives."""
    if not callable(function):
        raise InputError(f"{word} must be a function that gives a model; got {function!r}")
    try:
        made = function()
    except Exception as error:
        raise InputError(f"{word} gives no model: {type(error).__name__}: {error}") from error
    return resolve_model(cast("HookedModel", made))
